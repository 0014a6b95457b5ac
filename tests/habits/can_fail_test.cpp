// SPDX-License-Identifier: Apache-2.0
// Proof that habits can fail: an honest toy row keeps them all, and for every mistake that a row can make, the habits
// and casebook rows named here catch it. A habit that nobody trips over would be found at the end of the list.
#include <gtest/gtest.h>

#include <set>

#include "habits/casebook.hpp"
#include "support/toy.hpp"

namespace fresnel::test {
namespace {

std::vector<const Habit*> all_habits() {
  std::vector<const Habit*> all;
  for (const auto habits :
       {hidden_value_habits(), layout_habits(), address_habits(), company_habits(), thread_habits(), option_habits(),
        score_habits(), size_habits(), workspace_habits(), long_row_habits(), casebook_mask_rows(),
        casebook_number_rows(), casebook_shape_rows(), casebook_serving_rows()})
    for (const Habit& habit : habits) all.push_back(&habit);
  return all;
}

const Habit& habit_named(std::string_view name) {
  for (const Habit* habit : all_habits())
    if (habit->name == name) return *habit;
  throw std::invalid_argument("no habit is called " + std::string(name));
}

Runner toy(Mistake mistake) { return {toy_row(mistake), Isa::baseline, false}; }

struct Catch {
  Mistake mistake;
  std::string_view habit;
};

/// Each habit here must report each mistake beside it.
constexpr Catch catches[] = {
    {Mistake::rescale_forgotten, "a_rising_maximum_spoils_nothing"},
    {Mistake::rescale_forgotten, "every_set_of_options_agrees_with_the_textbook"},
    {Mistake::stale_maximum, "a_rising_maximum_spoils_nothing"},
    {Mistake::causal_off_by_one, "each_option_changes_the_answer"},
    {Mistake::causal_off_by_one, "every_set_of_options_agrees_with_the_textbook"},
    {Mistake::causal_off_by_one, "Row22_causal_with_more_queries_than_keys"},
    {Mistake::causal_off_by_one, "Row23_ragged_last_query_tile_under_causal"},
    {Mistake::causal_off_by_one, "Row121_prefill_decode_and_speculation"},
    {Mistake::causal_off_by_one, "dead_keys_change_no_bit"},
    {Mistake::causal_off_by_one, "whole_bad_keys_stay_hidden"},
    {Mistake::tail_counted, "every_tiny_size_is_right"},
    {Mistake::tail_counted, "Row17_softcap_and_the_tail_of_a_tile"},
    {Mistake::tail_counted, "Row34_scores_far_below_zero"},
    {Mistake::softcap_after_mask, "Row16_softcap_before_mask"},
    {Mistake::softcap_after_mask, "every_set_of_options_agrees_with_the_textbook"},
    {Mistake::heads_in_tile_order, "values_name_their_head"},
    {Mistake::heads_in_tile_order, "Row85_any_whole_ratio_of_heads"},
    {Mistake::heads_in_tile_order, "Row100_many_heads_on_few_around_1024_keys"},
    {Mistake::heads_in_tile_order, "heads_alone_have_the_bits_of_company"},
    {Mistake::base_two_lse, "Row46_lse_is_a_natural_logarithm"},
    {Mistake::base_two_lse, "shifted_scores_are_ordinary_scores"},
    {Mistake::base_two_lse, "Row101_windows_across_the_edge_of_a_prefix"},
    {Mistake::base_two_lse, "Row49_lse_is_written"},
    {Mistake::short_head_dim, "the_last_component_of_a_head_counts"},
    {Mistake::short_head_dim, "Row65_every_head_dim"},
    {Mistake::scale_of_value_dim, "Row68_values_of_another_width"},
    {Mistake::emptiness_by_threshold, "shifted_scores_are_ordinary_scores"},
    {Mistake::hidden_times_zero, "Row13_nan_in_unused_cache_slots"},
    {Mistake::hidden_times_zero, "Row92_slots_past_the_length_change_no_bit"},
    {Mistake::hidden_times_zero, "Row98_a_cache_with_room_gives_the_same_bits"},
    {Mistake::hidden_times_zero, "dead_keys_change_no_bit"},
    {Mistake::hidden_times_zero, "bad_keys_reach_only_rows_that_see_them"},
    {Mistake::hidden_times_zero, "whole_bad_keys_stay_hidden"},
    {Mistake::nan_hidden, "Row14_nan_queries_are_not_hidden"},
    {Mistake::nan_hidden, "bad_queries_stay_in_their_rows"},
    {Mistake::nan_hidden, "bad_keys_reach_only_rows_that_see_them"},
    {Mistake::half_scores, "Row38_scores_beyond_half"},
    {Mistake::half_accumulator, "Row37_sum_of_values_beyond_half"},
    {Mistake::alibi_dropped, "each_option_changes_the_answer"},
    {Mistake::alibi_dropped, "Row52_alibi_under_causal"},
    {Mistake::alibi_distance_dropped, "each_option_changes_the_answer"},
    {Mistake::alibi_distance_dropped, "Row53_alibi_without_causal"},
    {Mistake::window_zero_is_absent, "Row25_a_window_bound_of_zero_is_a_bound"},
    {Mistake::window_zero_is_absent, "each_option_changes_the_answer"},
    {Mistake::window_clamped, "Row26_huge_window_bounds_are_not_clamped"},
    {Mistake::top_left_dropped, "each_option_changes_the_answer"},
    {Mistake::lengths_of_the_first, "lengths_of_others_change_no_bit"},
    {Mistake::lengths_of_the_longest_tile, "lengths_of_others_change_no_bit"},
    {Mistake::sums_by_layout, "every_layout_class_gives_the_same_bits"},
    {Mistake::sums_by_layout, "Row76_interleaved_tensors"},
    {Mistake::tile_by_lanes, "same_bits_for_any_threads_and_lanes"},
    {Mistake::offsets_in_32_bits, "huge_strides_reach_the_right_rows"},
    {Mistake::offsets_in_32_bits, "Row73_offsets_through_strides"},
    {Mistake::offsets_in_32_bits, "rows_beyond_32_bits_are_reached_by_small_strides"},
    {Mistake::half_accumulator, "a_million_equal_scores_give_the_mean"},
    {Mistake::base_two_lse, "a_million_equal_scores_give_the_mean"},
    {Mistake::hidden_times_zero, "only_the_last_hundred_of_33000_keys_count"},
    {Mistake::empty_rows_unwritten, "rows_that_see_nothing_are_zero"},
    {Mistake::empty_rows_unwritten, "empty_extents_give_empty_or_zero"},
    {Mistake::empty_rows_unwritten, "Row61_sequences_without_keys"},
    {Mistake::empty_rows_unwritten, "Row91_a_length_of_zero_is_written_as_zero"},
    {Mistake::empty_rows_unwritten, "Row47_lse_of_no_keys_is_minus_infinity"},
    {Mistake::writes_past_the_row, "outputs_keep_what_lies_between_rows"},
    {Mistake::writes_past_the_row, "Row82_outputs_in_either_order_of_axes"},
    {Mistake::writes_past_the_row, "nothing_outside_the_tensors_is_touched"},
    {Mistake::writes_past_the_row, "every_tiny_size_is_right"},
    {Mistake::writes_past_the_slice, "every_tiny_size_is_right"},
    {Mistake::hungry, "workspaces_stay_small"},
    {Mistake::hungry, "workspaces_grow_with_the_length_of_a_row"},
};

TEST(HabitsCanFail, AnHonestRowKeepsThemAll) {
  for (const Habit* habit : all_habits()) EXPECT_EQ(faults_of(*habit, toy(Mistake::none)), "") << habit->name;
}

TEST(HabitsCanFail, EveryMistakeIsCaughtWhereItIsNamed) {
  for (const Catch& one : catches)
    EXPECT_NE(faults_of(habit_named(one.habit), toy(one.mistake)), "") << name(one.mistake) << " passed " << one.habit;
}

TEST(HabitsCanFail, EveryMistakeIsInTheList) {
  std::set<Mistake> listed{Mistake::none, Mistake::allocates};  // memory is counted in a program of its own
  for (const Catch& one : catches) listed.insert(one.mistake);
  EXPECT_EQ(listed.size(), static_cast<std::size_t>(Mistake::count));
}

}  // namespace
}  // namespace fresnel::test
