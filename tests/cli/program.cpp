// SPDX-License-Identifier: Apache-2.0
// Subprocesses and scratch folders: see program.hpp.
#include "cli/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace fresnel::test {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

[[noreturn]] void become(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                         const std::string& out, const std::string& err) {
  constexpr unsigned patience_seconds = 120;
  const int out_file = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 0600);
  const int err_file = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(out_file, STDOUT_FILENO);
  dup2(err_file, STDERR_FILENO);
  alarm(patience_seconds);  // survives exec: SIGALRM ends a program that hangs
  std::vector<char*> arguments{const_cast<char*>(FRESNEL_PROGRAM)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  variables.push_back(nullptr);
  execve(FRESNEL_PROGRAM, arguments.data(), variables.data());
  _exit(127);
}

Outcome start_and_wait(const Folder& folder, const std::string& out, const std::vector<std::string>& words,
                       const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> variables{{"PATH", "/usr/bin:/bin"}, {"XDG_CACHE_HOME", folder.file("cache")}};
  for (const auto& [name, value] : environment) variables[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(fmt::format("{}={}", name, value));
  const std::string err = folder.file("err");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become(words, lines, out, err);
  int status = 0;
  waitpid(child, &status, 0);
  Outcome run;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.err = contents_of(err);
  return run;
}

}  // namespace

Json& Outcome::json() const& {
  if (!document_) document_ = Json::parse(out, nullptr, false);
  return *document_;
}

Json Outcome::json() && { return Json::parse(out, nullptr, false); }

Folder::Folder() {
  static std::atomic<int> counter{0};
  path_ = std::filesystem::temp_directory_path() /
          ("fresnel-cli-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
  std::filesystem::create_directories(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> Folder::contents() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Outcome fresnel(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  const Folder folder;
  Outcome run = start_and_wait(folder, folder.file("out"), words, environment);
  run.out = contents_of(folder.file("out"));
  return run;
}

Outcome fresnel_into(const std::string& out, const std::vector<std::string>& words,
                     const std::map<std::string, std::string>& environment) {
  const Folder folder;
  return start_and_wait(folder, out, words, environment);
}

Outcome fresnel_on_terminal(const std::vector<std::string>& words,
                            const std::map<std::string, std::string>& environment) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) throw std::runtime_error("no terminal");
  const int kept_open = open(ptsname(terminal), O_RDWR | O_NOCTTY);  // what was written is lost with the last closer
  Outcome outcome = fresnel_into(ptsname(terminal), words, environment);
  std::array<char, 4096> text{};
  const ssize_t length = read(terminal, text.data(), text.size());
  outcome.out.assign(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  close(kept_open);
  close(terminal);
  return outcome;
}

std::string data_case(const std::string& name) {
  return std::string(FRESNEL_TEST_DATA) + "/cases/" + name + ".safetensors";
}

std::string shown(const Outcome& run) {
  return "exit " + std::to_string(run.code) + "\n--- standard output\n" + run.out + "--- standard error\n" + run.err;
}

}  // namespace fresnel::test
