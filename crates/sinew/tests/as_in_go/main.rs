//! The behaviours that Go's tests of channels, of `select` and of its package `sync` check, as
//! tests of `sinew::sync` and `sinew::select!`.
//!
//! Dropping the last sender closes a channel. Where Go reports a zero value and `false`, a receiver
//! gets an error here. Sending without a receiver gives the message back; Go panics. There are no
//! nil channels: an unwanted arm is left out (`sinew::sync::select`), or gets an unused channel.
//!
//! | in Go | here, or why not |
//! | --- | --- |
//! | `chan_test.go` of its runtime | |
//! | `TestChan`: receivers and senders wait | [`receivers_of_empty_and_senders_to_full_channels_wait`] |
//! | `TestChan`: receiving after a close | [`sent_messages_outlive_the_close`] |
//! | `TestChan`: a close ends a wait | [`a_close_ends_every_kind_of_wait`] |
//! | `TestChan`: order, four to four | [`messages_keep_their_order`], [`many_to_many`] |
//! | `TestChan`: `len`, `cap` | [`lengths_and_capacities`] |
//! | `TestNonblockRecvRace` | [`a_message_does_not_go_with_the_close`] |
//! | `TestNonblockSelectRace`, `TestNonblockSelectRace2` | [`a_ready_arm_comes_before_the_default`], [`one_of_two_is_ready_at_any_moment`] |
//! | `TestSelfSelect` | [`no_select_receives_from_itself`] |
//! | `TestSelectStress` | [`selects_among_plain_operations`] |
//! | `TestSelectFairness` | [`no_ready_arm_is_left_out`], [`ready_arms_have_equal_chances`] |
//! | `TestChanSendInterface` | [`messages_of_any_type_that_were_not_sent`] |
//! | `TestPseudoRandomSend` | [`equal_arms_are_chosen_at_random`] |
//! | `TestMultiConsumer` | [`workers_share_a_queue`] |
//! | `TestSelectDuplicateChannel` | [`a_channel_twice_in_one_select`] |
//! | `TestShrinkStackDuringBlockedSend`, `TestNoShrinkStackWhileParking`, `TestSelectStackAdjust` | no: stacks neither shrink nor move |
//! | `TestChanSendBarrier`, `TestChanSendSelectBarrier` | no: there is no garbage collector |
//! | `test/chan` | |
//! | `doubleselect` | [`one_arm_of_a_select_is_done`] |
//! | `fifo` | [`messages_keep_their_order`], [`a_chain_reads_in_turn`] |
//! | `goroutines` | [`a_long_chain_passes_one_message`] |
//! | `nonblock` | [`trying_until_the_other_side_is_there`] |
//! | `perm` | no: a `Sender` has no `recv`, and a `Receiver` no `send` |
//! | `powser1`, `powser2` | [`power_series`] |
//! | `select` | [`messages_of_arms_are_made_anew_each_time`] |
//! | `select2` | `allocation::warm_operations_do_not_allocate` |
//! | `select3` | [`an_operation_waits_only_if_it_cannot_complete`], `selecting::one_channel_in_several_arms` |
//! | `select4`, `select5` (order) | [`arms_are_evaluated_once_and_in_order`] |
//! | `select5` (forms), `select7` | [`every_way_to_send_meets_every_way_to_receive`] |
//! | `select6` | [`a_select_leaves_other_waiters_in_the_list`] |
//! | `select8` | `selecting::bodies_are_ordinary_code` |
//! | `sendstmt` | [`channels_through_channels`] |
//! | `sieve1` | `channels::a_sieve_of_primes` |
//! | `sieve2` | [`primes_by_merging_multiples`] |
//! | `zerosize` | [`messages_without_size`] |
//! | elsewhere in `test` | |
//! | `chancap` | [`lengths_and_capacities`]; a negative size is not a `usize` |
//! | `chanlinear` | [`leaving_a_crowded_channel_takes_no_longer`] |
//! | `closedchan` | [`sent_messages_outlive_the_close`], [`sending_without_a_receiver_gives_the_message_back`]; a sender is dropped once |
//! | `ken/chan` | [`networks_of_selects`] |
//! | `ken/chan1` | [`many_to_many`], [`workers_share_a_queue`] |
//! | `range` (channels) | [`a_loop_over_a_channel_ends_with_it`] |
//! | `typeparam/chans` | [`merged_filtered_and_owned`] |
//! | `makechan`, `syntax/chan`, `syntax/chan1`, `typeparam/chansimp`, `typeparam/select`, `abi/*select*` | no: about Go's compiler |
//! | `src/sync` | |
//! | `TestSemaphore`, `TestMutex` | `signals::permits_are_conserved`, `as_in_std::a_mutex_counts` |
//! | `TestMutexFairness` | [`a_busy_mutex_is_acquired_in_time`], `locks::an_overtaken_waiter_is_next` |
//! | `TestMutexMisuse`, `TestRLocker`, `TestCondCopy` | no: guards unlock, and borrowed values are neither copied nor moved |
//! | `TestCondSignal`, `TestCondBroadcast` | `as_in_std::a_notification_wakes_one`, `as_in_std::all_are_notified` |
//! | `TestCondSignalGenerations`, `TestRace` | [`a_notification_wakes_only_earlier_waiters`], `locks::each_notification_wakes_one_waiter` |
//! | `TestCondSignalStealing` | [`a_latecomer_takes_no_notification`] |
//! | `TestOnce`, `TestOncePanic` | `as_in_std::done_once`, `as_in_std::tried_again_after_a_panic`: in Go a panic counts as done |
//! | `TestOnceFunc`, `TestOnceValue`, `TestOnceValues`, `TestOnceFuncPanic`, `TestOnceValuePanic`, `TestOnceValuesPanic` | `as_in_std::a_lazy_value_is_made_once`, `as_in_std::a_lazy_value_that_could_not_be_made` |
//! | `TestOnceFuncPanicNil`, `TestOnceFuncGoexit`, `TestOnceFuncPanicTraceback`, `TestOnceXGC` | no: about Go's runtime |
//! | `TestParallelReaders`, `TestRWMutex` | `as_in_std::readers_share_and_a_writer_does_not`, `locks::locks_under_load` |
//! | `TestWaitGroup`, `TestWaitGroupRace`, `TestWaitGroupGo` | [`a_wait_group_is_not_left_early`], `signals::all_parts_are_waited_for` |
//! | `TestWaitGroupMisuse`, `TestWaitGroupAlign` | no: parts are values, which cannot be counted wrongly |
//! | `TestIssue76126` | `signals::all_parts_are_waited_for`: a part that panics ends, and the process goes on |

#[path = "../team/mod.rs"]
mod team;

mod channels;
mod locks;
mod programs;
mod selects;

use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
