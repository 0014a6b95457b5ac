// SPDX-License-Identifier: Apache-2.0
// `fresnel count`: what attention kernels ask of memory, counted by walking them on an emulated machine of workgroups.
// Sizes may be swept or given as problem lines; with --kernel the rows of the catalogue are replayed instead
// (count_kernels.cpp). It computes no attention.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/commands.hpp"
#include "cli/counting.hpp"
#include "cli/emulated_run.hpp"
#include "cli/errors.hpp"
#include "cli/verdict.hpp"
#include "traffic/emulate.hpp"

namespace fresnel::cli {
namespace {

using traffic::Kind;

/// Words as typed.
struct Typed {
  std::vector<std::string> problems, n, d, kinds, kernels;
  Text tile, memory, heads, queries, left, right, machine, page_size;
  bool causal = false, lse = false, paged = false, caches = false, cold = false, check = false, json = false;

  /// Something that shapes the problems of a sweep was given.
  [[nodiscard]] bool shaped() const { return heads || queries || left || right || causal || lse; }
};

/// What to count.
struct Request {
  std::vector<Problem> problems;
  std::vector<Kind> kinds;  ///< empty: those of the lesson, or the backward where gradients are asked for
  traffic::TileChoice tile;
  std::optional<traffic::Rates> rates;
  bool caches = false;
  bool cold = false;
  bool check = false;
  bool lesson = true;  ///< n queries and keys of width d and nothing else
};

/// What a run of a counted kernel showed.
struct Checked {
  Verdict verdict;
  bool same_counts = false;  ///< the run asked for what the walk said
  bool raced = false;
  [[nodiscard]] bool right() const { return verdict.ok() && same_counts && !raced; }
};

struct Row {
  Kind kind;
  traffic::Shape shape;
  traffic::WalkKind walk;
  traffic::Emulation emulation;
  std::optional<traffic::Counts> formula;
  traffic::Count fused_words = 0;  ///< what fused asks of global memory for the same problem
  std::optional<traffic::Simulation> caches = std::nullopt;
  std::optional<Checked> checked = std::nullopt;
};

/// No size of a sweep is larger; products of them are refused where their counts are too large.
constexpr std::int64_t most = std::int64_t{1} << 30;

/// Keys of a page where --page-size is not given.
constexpr std::int64_t usual_page = 16;

/// Up to here every pair is walked; beyond, what is alike is walked once and multiplied.
constexpr double most_pairs_walked = 0x1p25;

/// "64,128" and "64" "128" alike.
Result<std::vector<std::int64_t>> numbers(const std::string& name, const std::vector<std::string>& words,
                                          std::vector<std::int64_t> otherwise) {
  if (words.empty()) return otherwise;
  std::vector<std::int64_t> values;
  for (const std::string& word : words)
    for (std::size_t at = 0; at <= word.size();) {
      const std::size_t comma = std::min(word.find(',', at), word.size());
      const auto value = whole_number(name, word.substr(at, comma - at), 1, most);
      if (!value) return value.refusal();
      values.push_back(*value);
      at = comma + 1;
    }
  return values;
}

Status read_number(const std::string& name, const Text& text, std::int64_t least, std::optional<std::int64_t>& to) {
  if (!text) return Done{};
  const auto value = whole_number(name, *text, least, most);
  if (!value) return value.refusal();
  to = *value;
  return Done{};
}

/// "8" or "8/2".
Status read_heads(const Text& text, Problem& problem) {
  if (!text) return Done{};
  const std::size_t slash = text->find('/');
  const auto query_heads = whole_number("--heads", text->substr(0, slash), 1, most);
  if (!query_heads) return query_heads.refusal();
  problem.heads_q = problem.heads_kv = *query_heads;
  if (slash == std::string::npos) return Done{};
  const auto kv_heads = whole_number("--heads", text->substr(slash + 1), 1, most);
  if (!kv_heads) return kv_heads.refusal();
  problem.heads_kv = *kv_heads;
  return Done{};
}

/// The problems of a sweep, n outermost within each d, as the lesson has them.
Result<std::vector<Problem>> swept(const Typed& typed) {
  const auto n = numbers("--n", typed.n, {64, 128, 256, 512, 1024, 2048, 4096});
  if (!n) return n.refusal();
  const auto d = numbers("--d", typed.d, {16, 64});
  if (!d) return d.refusal();
  Problem one;
  std::optional<std::int64_t> queries;
  for (const Status& read : {read_number("--queries", typed.queries, 1, queries),
                             read_number("--window-size-left", typed.left, 0, one.options.window_size_left),
                             read_number("--window-size-right", typed.right, 0, one.options.window_size_right),
                             read_heads(typed.heads, one)})
    if (!read) return read.refusal();
  one.options.causal = typed.causal;
  one.lse = typed.lse;
  std::vector<Problem> problems;
  for (const std::int64_t width : *d)
    for (const std::int64_t length : *n) {
      one.keys = length;
      one.queries = queries.value_or(length);
      one.head_dim = one.value_dim = width;
      problems.push_back(one);
    }
  return problems;
}

Result<std::vector<Problem>> parsed_problems(const Typed& typed) {
  if (!typed.n.empty()) return refuse("--n", "together with a problem line", "one of them");
  if (!typed.d.empty()) return refuse("--d", "together with a problem line", "one of them");
  if (typed.shaped())
    return refuse("PROBLEM", "together with options that shape a sweep", "heads, masks and lse in the line itself");
  std::vector<Problem> problems;
  for (const std::string& line : typed.problems) {
    const auto problem = parse_problem(line);
    if (!problem) return problem.refusal();
    if (const Status valid = validate(*problem); !valid) return valid.refusal();
    problems.push_back(*problem);
  }
  return problems;
}

Result<std::vector<Kind>> kinds_of(const Typed& typed) {
  std::vector<Kind> kinds;
  std::vector<std::string> names;
  for (const Kind kind : traffic::all_kinds) names.emplace_back(name(kind));
  for (const std::string& word : typed.kinds) {
    const auto kind = traffic::kind_named(word);
    if (!kind) return refuse("--kind", "'" + word + "'", joined(names), nearest_word(word, names));
    kinds.push_back(*kind);
  }
  return kinds;
}

Result<Request> request_of(const Typed& typed) {
  Request request;
  auto problems = typed.problems.empty() ? swept(typed) : parsed_problems(typed);
  if (!problems) return problems.refusal();
  request.problems = std::move(*problems);
  request.lesson = typed.problems.empty() && !typed.shaped();
  auto kinds = kinds_of(typed);
  if (!kinds) return kinds.refusal();
  request.kinds = std::move(*kinds);
  if (typed.tile && typed.memory) return refuse("--tile", "together with --memory", "one of them");
  std::optional<std::int64_t> memory;
  if (const Status read = read_number("--tile", typed.tile, 1, request.tile.rows); !read) return read.refusal();
  if (const Status read = read_number("--memory", typed.memory, 1, memory); !read) return read.refusal();
  request.tile.memory_bytes = memory.value_or(request.tile.memory_bytes);
  std::optional<std::int64_t> page;
  if (const Status read = read_number("--page-size", typed.page_size, 1, page); !read) return read.refusal();
  if (page && !typed.paged) return refuse("--page-size", "without --paged", "with --paged");
  if (typed.paged) request.tile.page_size = page.value_or(usual_page);
  auto rates = rates_for(typed.machine);
  if (!rates) return rates.refusal();
  request.rates = *rates;
  request.caches = typed.caches;
  request.cold = typed.cold;
  request.check = typed.check;
  if (typed.cold && !typed.caches) return refuse("--cold", "without --caches", "with the caches that are to be cold");
  if (typed.caches && !request.rates)
    return refuse("--caches", "without --machine", "with the machine whose caches they are");
  return request;
}

/// The kinds to count for one problem.
std::vector<Kind> kinds_for(const Problem& problem, const Request& request) {
  if (!request.kinds.empty()) return request.kinds;
  if (request.tile.page_size > 0 && !problem.grad) return {Kind::fused};
  return problem.grad ? std::vector{Kind::backward} : std::vector{Kind::unfused, Kind::fused};
}

/// The refusal in the words that were typed.
Refusal as_typed(Refusal refusal, const Request& request) {
  if (refusal.argument == "memory" || refusal.argument == "tile" || refusal.argument == "caches" ||
      refusal.argument == "machine" || refusal.argument == "paged")
    refusal.argument = "--" + refusal.argument;
  if (!request.lesson) return refusal;
  if (refusal.argument == "queries" || refusal.argument == "keys") refusal.argument = "--n";
  if (refusal.argument == "head_dim") refusal.argument = "--d";
  return refusal;
}

Result<traffic::Simulation> simulated(const Row& row, const Request& request) {
  if (request.rates->name == "cpu") {
    const auto machine = Machine::detect();
    if (!machine) return machine.refusal();
    auto caches = traffic::caches_of(*machine, machine->threads);
    caches.cold = request.cold;
    return traffic::simulate(row.kind, row.shape, caches);
  }
  auto caches = traffic::caches_of(*request.rates, row.shape, row.emulation.shared_bytes);
  if (!caches) return caches.refusal();
  caches->cold = request.cold;
  return traffic::simulate(row.kind, row.shape, *caches);
}

/// Multiply-adds and requests that a checked run may take: some seconds of the emulated machine.
constexpr traffic::Count most_run = traffic::Count{1} << 31;

Result<Checked> checked(const Row& row) {
  if (row.emulation.counts.fma > most_run || row.emulation.counts.global() > most_run)
    return refuse("--check", fmt::format("{} multiply-adds", row.emulation.counts.fma), "at most 2^31");
  const auto run = EmulatedRun::make(row.kind, row.shape);
  if (!run) return run.refusal();
  const auto verdict = run->judged();
  if (!verdict) return verdict.refusal();
  return Checked{*verdict, run->emulation == row.emulation, run->emulation.race.has_value()};
}

Result<Row> row_of(Kind kind, Problem problem, const Request& request) {
  if (kind == Kind::backward) problem.grad = problem.lse = true;  // the kind says it
  const auto shape = traffic::shape_of(kind, problem, request.tile);
  if (!shape) return as_typed(shape.refusal(), request);
  const double heads = static_cast<double>(problem.batch) * static_cast<double>(problem.heads_q);
  const double pairs = heads * static_cast<double>(problem.queries + 1) * static_cast<double>(problem.keys + 1);
  const auto walk = pairs <= most_pairs_walked ? traffic::WalkKind::each : traffic::WalkKind::closed;
  Row row{kind, *shape, walk, traffic::count(kind, *shape, walk), traffic::closed_form(kind, *shape), 0};
  if (kind != Kind::backward) row.fused_words = traffic::count(Kind::fused, *shape).counts.global();
  if (request.caches) {
    auto simulation = simulated(row, request);
    if (!simulation) return as_typed(simulation.refusal(), request);
    row.caches = std::move(*simulation);
  }
  if (request.check) {
    auto found = checked(row);
    if (!found) return found.refusal();
    row.checked = std::move(*found);
  }
  return row;
}

double real(traffic::Count count) { return static_cast<double>(count); }

/// Bytes of the matrix of scores, allocated or not.
traffic::Count score_matrix_bytes(const Problem& problem) {
  const auto count = [](std::int64_t value) { return static_cast<traffic::Count>(value); };
  return count(problem.batch) * count(problem.heads_q) * count(problem.queries) * count(problem.keys) *
         static_cast<traffic::Count>(traffic::word_bytes);
}

double over_theta(const Row& row) { return real(row.emulation.counts.global()) / theta(row.kind, row.shape); }

traffic::Roofline roofline_of(const Row& row, const traffic::Rates& rates) {
  const traffic::Counts& counts = row.emulation.counts;
  return traffic::roofline(
      {2 * real(counts.fma), real(counts.exps), traffic::word_bytes * real(counts.shared_reads + counts.shared_writes),
       real(counts.global_bytes())},
      rates);
}

Json document_of(const Row& row, const Request& request) {
  const traffic::Counts& counts = row.emulation.counts;
  const Problem& problem = row.shape.problem;
  const bool backward = row.kind == Kind::backward;
  Json json{{"problem", print(problem)},
            {"n", problem.keys},
            {"d", problem.head_dim},
            {"b", row.shape.tile},
            {"page_size", row.shape.page_size},
            {"kind", name(row.kind)},
            {"global_reads", counts.global_reads},
            {"global_writes", counts.global_writes},
            {"fma", counts.fma},
            {"exps", counts.exps},
            {"barriers", counts.barriers},
            {"shared_reads", counts.shared_reads},
            {"shared_writes", counts.shared_writes},
            {"global_bytes", counts.global_bytes()},
            {"extra_memory_bytes", row.emulation.extra_memory_bytes},
            {"score_matrix_bytes", score_matrix_bytes(problem)},
            {"shared_per_workgroup_bytes", row.emulation.shared_bytes},
            {"over_theta", number(over_theta(row))},
            {"theta_words", number(theta(row.kind, row.shape))},
            {"matches_closed_form", row.formula ? Json(*row.formula == counts) : Json(nullptr)},
            {"walk", row.walk == traffic::WalkKind::each ? "each" : "closed"},
            {"over_fused", backward ? Json(nullptr) : number(real(counts.global()) / real(row.fused_words))},
            {"compulsory_bytes", number(traffic::compulsory_bytes(row.kind, row.shape))},
            {"arithmetic_intensity", number(2 * real(counts.fma) / real(counts.global_bytes()))}};
  if (request.rates) json["machine"] = to_json(*request.rates, roofline_of(row, *request.rates));
  if (row.caches) json["caches"] = to_json(*row.caches, *request.rates);
  if (row.checked) {
    json["check"] = to_json(row.checked->verdict);
    json["check"]["same_counts"] = row.checked->same_counts;
    json["check"]["raced"] = row.checked->raced;
  }
  return json;
}

std::string count_of(traffic::Count count) { return grouped(static_cast<std::int64_t>(count)); }

/// "67,108,864", or "0 of 67,108,864" where the matrix is never allocated.
std::string scores_of(const Row& row) {
  const traffic::Count matrix = score_matrix_bytes(row.shape.problem);
  return row.kind == Kind::unfused ? count_of(matrix) : "0 of " + count_of(matrix);
}

std::string formula_of(const Row& row, const Paint& paint) {
  if (!row.formula) return paint.faint("none");
  return *row.formula == row.emulation.counts ? paint.good("equal") : paint.bad("DIFFERS");
}

/// What tells the rows apart.
std::vector<Table::Column> labels(const Request& request) {
  using Align = Table::Align;
  std::vector<Table::Column> columns{{"problem"}};
  if (request.lesson) columns = {{"n", Align::right}, {"d", Align::right}};
  columns.push_back({"tile", Align::right});
  if (request.tile.page_size > 0) columns.push_back({"page", Align::right});
  columns.push_back({"kind"});
  return columns;
}

std::vector<std::string> label_of(const Row& row, const Request& request) {
  const Problem& problem = row.shape.problem;
  std::vector<std::string> cells{print(problem)};
  if (request.lesson) cells = {fmt::format("{}", problem.keys), fmt::format("{}", problem.head_dim)};
  cells.push_back(fmt::format("{}", row.shape.tile));
  if (row.shape.paged()) cells.push_back(fmt::format("{}", row.shape.page_size));
  cells.emplace_back(name(row.kind));
  return cells;
}

std::vector<std::string> joined_cells(std::vector<std::string> cells, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(cells));
  return cells;
}

void print_checks(const std::vector<Row>& rows, const Request& request, const Paint& paint) {
  std::vector<Table::Column> columns = labels(request);
  for (const char* head : {"run in float32", "counts", "against the oracle"}) columns.push_back({head});
  Table table(columns);
  for (const Row& row : rows)
    table.add(joined_cells(label_of(row, request), {paint.verdict(row.checked->right()),
                                                    row.checked->same_counts ? "equal" : paint.bad("DIFFER"),
                                                    verdict_line(row.checked->verdict)}));
  fmt::print("\n{}", table.text(paint));
}

void print_for_people(const std::vector<Row>& rows, const Request& request) {
  const Paint paint = Paint::of_stdout();
  const auto table_of = [&](const std::vector<std::string>& heads) {
    std::vector<Table::Column> columns = labels(request);
    for (const std::string& head : heads) columns.push_back({head, Table::Align::right});
    return Table(columns);
  };
  Table global = table_of({"global reads", "global writes", "bytes", "bytes of scores", "/ theta", "formula"});
  Table inside = table_of({"workgroup reads", "workgroup writes", "barriers", "multiply-adds", "exponentials"});
  for (const Row& row : rows) {
    const traffic::Counts& counts = row.emulation.counts;
    global.add(joined_cells(label_of(row, request), {count_of(counts.global_reads), count_of(counts.global_writes),
                                                     count_of(counts.global_bytes()), scores_of(row),
                                                     fmt::format("{:.4f}", over_theta(row)), formula_of(row, paint)}));
    inside.add(
        joined_cells(label_of(row, request), {count_of(counts.shared_reads), count_of(counts.shared_writes),
                                              count_of(counts.barriers), count_of(counts.fma), count_of(counts.exps)}));
  }
  fmt::print("{}\n{}", global.text(paint), inside.text(paint));
  if (request.check) print_checks(rows, request, paint);
  if (!request.rates) return;
  const std::string label =
      fmt::format("{}, tile, {}kind", request.lesson ? "n, d" : "problem", request.tile.page_size > 0 ? "page, " : "");
  RooflineTable times(label);
  CachesTable caches(label);
  for (const Row& row : rows) {
    times.add(joined(label_of(row, request)), roofline_of(row, *request.rates));
    if (row.caches)
      caches.add(joined(label_of(row, request)), *row.caches, real(row.emulation.counts.global_bytes()),
                 traffic::compulsory_bytes(row.kind, row.shape), *request.rates);
  }
  fmt::print("\nat the rates of {}, {}; every request goes to device memory\n\n{}", request.rates->name,
             request.rates->about, times.text(paint));
  if (request.caches) fmt::print("\nthrough its caches\n\n{}", caches.text(paint));
}

void add_options(Usage& usage, Typed& typed) {
  usage.positionals("PROBLEM", typed.problems, "Problem lines, instead of --n and --d");
  usage.repeated("--n", typed.n, "Queries and keys; one, or several as 64,128 (default 64 to 4096)", "N");
  usage.repeated("--d", typed.d, "Head widths (default 16 and 64)", "D");
  usage.repeated("--kind", typed.kinds, "unfused, fused, broken, outer_k or backward (default unfused and fused)",
                 "KIND");
  usage.option("--tile", typed.tile, "Rows of a tile", "B");
  usage.option("--memory", typed.memory, "Bytes of workgroup memory that tiles have to fit (default 16384)", "BYTES");
  usage.flag("--causal", typed.causal, "Key j is visible to query i if j <= i");
  usage.option("--window-size-left", typed.left, "Keys before the query that stay visible", "W");
  usage.option("--window-size-right", typed.right, "Keys after the query that stay visible", "W");
  usage.option("--heads", typed.heads, "Query heads, or query heads / key heads", "H[/K]");
  usage.option("--queries", typed.queries, "Queries where they are not N; 1 is a decoding step", "Q");
  usage.flag("--lse", typed.lse, "lse is written, too");
  usage.flag("--paged", typed.paged, "K and V lie in pages, found by a block table; fused and broken only");
  usage.option("--page-size", typed.page_size, "Keys of a page of --paged (default 16)", "P");
  usage.repeated("--kernel", typed.kernels, "Replay this row of the catalogue on the problems instead", "NAME");
  usage.option("--machine", typed.machine, "Times at the rates of cpu, h100, h200, a100 or webgpu", "NAME");
  usage.flag("--caches", typed.caches, "Send every request through the caches of --machine");
  usage.flag("--cold", typed.cold, "Empty those caches before each kernel, as a profiler does");
  usage.flag("--check", typed.check, "Also run what was counted, in float32, and judge it");
  usage.flag("--json", typed.json, "One JSON document on standard output");
}

/// What a replay of the catalogue cannot be told.
Status fit_for_replay(const Typed& typed) {
  if (typed.problems.empty()) return refuse("PROBLEM", "nothing", "a problem line for --kernel to be replayed on");
  if (!typed.kinds.empty()) return refuse("--kind", "together with --kernel", "one of them");
  if (typed.tile) return refuse("--tile", "together with --kernel", "nothing: a kernel chooses its tile");
  if (typed.memory) return refuse("--memory", "together with --kernel", "nothing: a kernel chooses its tile");
  if (typed.paged) return refuse("--paged", "together with --kernel", "nothing: replays know K and V in one piece");
  if (typed.cold) return refuse("--cold", "together with --kernel", "nothing: its caches are empty when it begins");
  if (typed.check) return refuse("--check", "together with --kernel", "nothing: `fresnel check` judges kernels");
  return Done{};
}

}  // namespace

Result<int> count_command(const Words& words) {
  Typed typed;
  Usage usage("count", "Counts what attention kernels ask of memory, level by level, and computes nothing.");
  add_options(usage, typed);
  const auto parsed = usage.parse(words);
  if (!parsed) return parsed.refusal();
  if (!*parsed) return exit_right;
  if (!typed.kernels.empty())
    if (const Status fit = fit_for_replay(typed); !fit) return fit.refusal();

  const auto request = request_of(typed);
  if (!request) return request.refusal();
  if (!typed.kernels.empty())
    return count_kernels({typed.kernels, request->problems, request->rates, typed.caches, typed.json});
  std::vector<Row> rows;
  for (const Problem& problem : request->problems)
    for (const Kind kind : kinds_for(problem, *request)) {
      auto row = row_of(kind, problem, *request);
      if (!row) return row.refusal();
      rows.push_back(std::move(*row));
    }
  const bool right =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return !row.checked || row.checked->right(); });
  const int code = right ? exit_right : exit_wrong;
  if (!typed.json) {
    print_for_people(rows, *request);
    return code;
  }
  Json document{{"rows", Json::array()}};
  for (const Row& row : rows) document["rows"].push_back(document_of(row, *request));
  emit(document);
  return code;
}

}  // namespace fresnel::cli
