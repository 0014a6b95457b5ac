// SPDX-License-Identifier: Apache-2.0
// `fresnel kernels`, `explain`, `machine`, --help and --version: what is said about the program and the machine.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "cli/program.hpp"
#include "kernels/kernel.hpp"

namespace fresnel::test {
namespace {

TEST(Kernels, JsonIsTheCatalogue) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"kernels", "--json"}, {"kernels", "--format", "json"}}) {
    const Outcome run = fresnel(words);
    ASSERT_EQ(run.code, 0) << shown(run);
    Json rows = run.json()["rows"];
    ASSERT_EQ(rows.size(), catalogue().size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const Kernel& kernel = catalogue()[row];
      EXPECT_EQ(rows[row]["name"], kernel.name);
      EXPECT_EQ(rows[row]["device"], name(kernel.device));
      EXPECT_EQ(rows[row]["built"], kernel.run != nullptr);
      EXPECT_EQ(rows[row]["determinism"], "bitwise");
      EXPECT_EQ(rows[row]["domain"]["head_dim"]["most"], kernel.domain.head_dim.most);
      const Json& most_keys = rows[row]["domain"]["keys"]["most"];
      EXPECT_EQ(most_keys.is_null(), kernel.domain.keys.most == INT64_MAX);
      if (most_keys.is_number()) {
        EXPECT_EQ(most_keys, kernel.domain.keys.most);
      }
      for (const Json& dtype : rows[row]["domain"]["dtypes"])
        EXPECT_TRUE(rows[row]["roundings"][dtype.get<std::string>()]["unit"].is_number()) << shown(run);
    }
  }
}

TEST(Kernels, TablesNameEveryRow) {
  const Outcome plain = fresnel({"kernels"});
  const Outcome markdown = fresnel({"kernels", "--format", "markdown"});
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(markdown.code, 0);
  EXPECT_TRUE(markdown.out.starts_with("# Kernels")) << shown(markdown);
  for (const Kernel& kernel : catalogue()) {
    EXPECT_NE(plain.out.find(kernel.name), std::string::npos) << shown(plain);
    EXPECT_NE(markdown.out.find("| " + std::string(kernel.name) + " |"), std::string::npos) << shown(markdown);
  }
}

/// What a row needs in order to be right, or to be chosen, stands in its line.
TEST(Kernels, TablesSayWhatIsRequired) {
  const Outcome run = fresnel({"kernels", "--format", "markdown"});
  for (const Kernel& kernel : catalogue()) {
    const std::size_t at = run.out.find("| " + std::string(kernel.name) + " |");
    const std::string line = run.out.substr(at, run.out.find('\n', at) - at);
    const bool more = kernel.prefers.dtypes.bits != 0 && kernel.prefers.required != kernel.domain.required;
    EXPECT_EQ(line.find("needs grad") != std::string::npos, kernel.domain.required.has(Feature::grad)) << line;
    EXPECT_EQ(line.find("with grouped_heads") != std::string::npos,
              more && kernel.prefers.required.has(Feature::grouped_heads))
        << line;
  }
}

TEST(Explain, OneRowIsChosenAndTheOthersSayWhyNot) {
  const std::string problem = "b1 h8/2 q128 k1024 d64 f32 causal";
  const Outcome run = fresnel({"explain", problem, "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  Json json = run.json();
  EXPECT_EQ(json["problem"], problem);
  int chosen = 0;
  for (const Json& row : json["rows"]) {
    chosen += row["chosen"].get<bool>() ? 1 : 0;
    EXPECT_EQ(row["chosen"].get<bool>(), row["kernel"] == "cpu.flash") << shown(run);
    EXPECT_EQ(row["chosen"].get<bool>(), row["refusal"].is_null()) << shown(run);
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(json["rows"].size(), catalogue().size());
  EXPECT_TRUE(json["plan"].is_string());
  const Outcome plain = fresnel({"explain", problem});
  EXPECT_EQ(plain.code, 0);
  EXPECT_NE(plain.out.find("chosen"), std::string::npos) << shown(plain);
}

TEST(Explain, AForcedRowIsChosen) {
  const Outcome run = fresnel({"explain", "b1 h1 q4 k4 d8 f32", "--kernel", "cpu.naive", "--json"});
  ASSERT_EQ(run.code, 0) << shown(run);
  EXPECT_GE(run.json()["rows"].size(), 2u) << shown(run);
  for (const Json& row : run.json()["rows"]) EXPECT_EQ(row["chosen"].get<bool>(), row["kernel"] == "cpu.naive");
}

TEST(Machine, MeasuresSavesAndIsUsed) {
  const Folder folder;
  const std::map<std::string, std::string> environment{{"XDG_CACHE_HOME", folder.path().string()}};
  const Outcome measured = fresnel({"machine", "--json"}, environment);
  ASSERT_EQ(measured.code, 0) << shown(measured);
  Json json = measured.json();
  for (const char* field : {"name", "isa", "cores", "threads", "peaks"}) EXPECT_TRUE(json.contains(field)) << field;
  for (const char* peak : {"f32_fma_tflops", "f64_fma_tflops", "dram_read_gbps"})
    EXPECT_GT(json["peaks"][peak].get<double>(), 0) << shown(measured);
  EXPECT_TRUE(json["peaks"].contains("bf16_tile_tflops"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "fresnel" / "machine.json"));

  const Outcome cached = fresnel({"machine", "--cached", "--json"}, environment);
  EXPECT_EQ(cached.json()["peaks"], json["peaks"]) << shown(cached);
  const Outcome plain = fresnel({"machine", "--cached"}, environment);
  EXPECT_NE(plain.out.find("dram_read_gbps"), std::string::npos) << shown(plain);

  const Outcome attend = fresnel({"attend", data_case("dense_gqa"), "--json"}, environment);
  ASSERT_TRUE(attend.json()["share_of_floor"].is_number()) << shown(attend);
  EXPECT_GT(attend.json()["share_of_floor"].get<double>(), 0);
}

/// One processor shared with somebody else who never sleeps: half of the time at most is ours.
TEST(Machine, ABusyOneIsNotMeasuredInSilence) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const pid_t neighbour = fork();
  if (neighbour == 0)
    for (volatile unsigned turns = 0;;) turns = turns + 1;
  const Outcome busy = fresnel({"machine", "--json"});
  kill(neighbour, SIGKILL);
  waitpid(neighbour, nullptr, 0);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_EQ(busy.code, 0) << shown(busy);
  EXPECT_NE(busy.json()["doubt"].dump().find("of the processor time"), std::string::npos) << shown(busy);
  EXPECT_NE(busy.err.find("the machine was busy"), std::string::npos) << shown(busy);
}

TEST(Help, ExitsWithZero) {
  for (const char* command :
       {"attend", "check", "overflow", "time", "kernels", "explain", "record", "audit", "machine"}) {
    const Outcome run = fresnel({command, "--help"});
    EXPECT_EQ(run.code, 0) << shown(run);
    EXPECT_NE(run.out.find("--json"), std::string::npos) << shown(run);
    EXPECT_EQ(run.err, "");
  }
  const Outcome help = fresnel({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command :
       {"attend", "check", "overflow", "time", "kernels", "explain", "record", "audit", "machine"})
    EXPECT_NE(help.out.find(command), std::string::npos) << shown(help);
  const Outcome version = fresnel({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("fresnel ")) << shown(version);
}

TEST(Colours, OnATerminalUnlessTheyAreRefused) {
  const std::string escape = "\x1b[";
  EXPECT_NE(fresnel_on_terminal({"kernels"}, {{"TERM", "xterm"}}).out.find(escape), std::string::npos);
  const Outcome refused = fresnel_on_terminal({"kernels"}, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_NE(refused.out.find("cpu.flash"), std::string::npos) << shown(refused);
  EXPECT_EQ(refused.out.find(escape), std::string::npos) << shown(refused);
  EXPECT_EQ(fresnel_on_terminal({"kernels"}, {{"TERM", "dumb"}}).out.find(escape), std::string::npos);
  EXPECT_EQ(fresnel_on_terminal({"explain", "b1 h1 q4 k4 d8 f32", "--json"}, {{"TERM", "xterm"}}).out.find(escape),
            std::string::npos);
}

TEST(Help, JsonMayStandBeforeTheCommand) {
  EXPECT_TRUE(fresnel({"--json", "kernels"}).json().contains("rows"));
  EXPECT_TRUE(fresnel({"--json", "kernals"}).json().contains("error"));
}

}  // namespace
}  // namespace fresnel::test
