//! The behaviours that the tests of `std::sync` check, as tests of `sinew::sync`.
//!
//! Three rules differ throughout. Nothing is poisoned: the next owner sees the state that a panic
//! left. `Once` and `OnceLock` try again after a panic. Locking a lock that the caller holds
//! panics. `channel` stands for `mpsc`, `mpmc` and `sync_channel`, so one row covers the tests of
//! that name in all three files.
//!
//! | in `library/std/tests/sync` | here, or why not |
//! | --- | --- |
//! | `mutex.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke`, `lots_and_lots` | [`a_mutex_counts`], `locks::one_at_a_time` |
//! | `try_lock` | [`trying_to_lock`] |
//! | `test_into_inner`, `test_into_inner_drop`, `test_get_mut` | [`data_of_locks_without_locking`] |
//! | `test_needs_drop` | no: about the types of the test |
//! | `test_get_cloned`, `test_set`, `test_set_drop`, `test_replace`, `test_mutex_with_mut` | no: there are no such methods; lock and assign |
//! | `test_mutex_arc_nested` | [`a_lock_in_a_lock`] |
//! | `test_mutex_unsized` | [`locks_of_unsized_data`] |
//! | `test_mapping_mapped_guard` | [`guards_of_parts`] |
//! | `test_panics`, `test_mutex_arc_poison`, `test_mutex_arc_poison_mapped`, `test_into_inner_poison`, `test_get_mut_poison` | [`a_panic_unlocks_and_does_not_poison`] |
//! | `test_get_cloned_poison`, `test_set_poison`, `test_replace_poison` | no: neither the methods nor poisoning |
//! | `panic_while_mapping_unlocked_poison` | [`a_panic_while_mapping_unlocks`] |
//! | `test_mutex_arc_access_in_unwind` | [`locks_in_destructors_while_unwinding`] |
//! | `rwlock.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke` | [`readers_share_and_a_writer_does_not`] |
//! | `frob` | `locks::locks_under_load` |
//! | `test_rw_arc` | [`readers_see_no_half_written_data`] |
//! | `test_rw_arc_access_in_unwind` | [`locks_in_destructors_while_unwinding`] |
//! | `test_rwlock_unsized` | [`locks_of_unsized_data`] |
//! | `test_into_inner`, `test_into_inner_drop`, `test_get_mut` | [`data_of_locks_without_locking`] |
//! | `test_rwlock_try_write` | [`trying_to_lock`] |
//! | `test_get_cloned`, `test_set`, `test_replace`, `test_rwlock_with`, `test_rwlock_with_mut`, and `…_poison` | no: there are no such methods; lock and assign |
//! | `test_needs_drop` | no: about the types of the test |
//! | `test_read_guard_covariance` | no: the guards of `lock_api` are invariant |
//! | `test_mapped_read_guard_covariance` | [`guards_of_parts`] |
//! | `test_downgrade_basic`, `test_downgrade_observe` | [`a_downgraded_guard_reads_the_written_value`] |
//! | `test_downgrade_atomic` | [`no_writer_comes_between_a_write_and_its_downgrade`] |
//! | `test_mapping_mapped_guard` | [`guards_of_parts`] |
//! | `test_rw_arc_poison_*`, `test_rw_arc_no_poison_*`, `test_into_inner_poison`, `test_get_mut_poison` | [`a_panic_unlocks_and_does_not_poison`] |
//! | `panic_while_mapping_read_unlocked_no_poison`, `panic_while_mapping_write_unlocked_poison` | [`a_panic_while_mapping_unlocks`] |
//! | `test_rwlock_max_readers` | [`many_read_at_once`], not all 2³⁰ of them |
//! | `reentrant_lock.rs` | no: there is none, see `locks::locking_again_is_an_error` |
//! | `condvar.rs`, each `poison_` and `nonpoison_` | |
//! | `smoke` | [`a_notification_without_waiters_is_not_kept`] |
//! | `notify_one`, `test_mutex_arc_condvar` | [`a_notification_wakes_one`] |
//! | `notify_all` | [`all_are_notified`], `locks::notify_all_wakes_all_waiters` |
//! | `wait_while` | [`waiting_while`] |
//! | `wait_timeout_wait`, `wait_timeout_wake`, `timeout_nanoseconds` | [`waits_with_a_timeout`] |
//! | `wait_timeout_while_wait`, `…_instant_satisfy`, `…_wake` | [`waiting_while_with_a_timeout`] |
//! | `test_arc_condvar_poison` | [`a_notifier_that_panics`] |
//! | `barrier.rs` | |
//! | `test_barrier` | [`a_barrier_has_one_leader`], `signals::rounds_of_a_barrier` |
//! | `RefUnwindSafe` of `Barrier` | [`signals_are_unwind_safe`] |
//! | `once.rs` | |
//! | `smoke_once`, `stampede_once` | [`done_once`] |
//! | `poison_bad`, `wait_for_force_to_finish` | [`tried_again_after_a_panic`] |
//! | `wait`, `wait_on_poisoned`, `wait_force_on_poisoned` | no: there is no `wait` without a closure |
//! | `once_lock.rs` | |
//! | `sync_once_cell`, `eval_once_macro` | [`a_value_is_written_once`] |
//! | `sync_once_cell_get_mut`, `clone`, `from_impl`, `into_inner`, `is_sync_send` | [`a_written_value_can_be_changed_cloned_and_taken`] |
//! | `sync_once_cell_drop`, `sync_once_cell_drop_empty` | [`a_written_value_is_dropped_once`] |
//! | `get_or_try_init` | [`a_value_that_could_not_be_made`] |
//! | `sync_once_cell_does_not_leak_partially_constructed_boxes` | [`half_a_value_is_never_seen`] |
//! | `partialeq_impl` | [`once_locks_are_compared`] |
//! | `dropck` | no: takes an unstable attribute |
//! | `lazy_lock.rs` | |
//! | `sync_lazy_new`, `sync_lazy_default`, `static_sync_lazy`, `static_sync_lazy_via_fn`, `is_sync_send` | [`a_lazy_value_is_made_once`] |
//! | `lazy_lock_deref_panic`, `lazy_lock_preserves_closure_panic_message` | [`a_lazy_value_that_could_not_be_made`] |
//! | `lazy_default`, `lazy_type_inference`, `lazy_poisoning` | no: about `LazyCell` |
//! | `const_lazy_default`, `lazy_force_mut`, `lazy_lock_deref_mut_panic` | no: neither a constant default nor `force_mut` |
//! | `mpsc.rs`, `mpmc.rs`, `mpsc_sync.rs` | |
//! | `smoke`, `smoke_shared`, `smoke_threads`, `send1`, `send_from_outside_runtime`, `recv_from_outside_runtime`, `no_runtime` | [`messages_between_fibers_and_threads`] |
//! | `drop_full`, `drop_full_shared`, `drop_unreceived` | [`unreceived_messages_are_dropped`], `channels::messages_are_dropped_with_the_last_receiver` |
//! | `smoke_port_gone`, `smoke_shared_port_gone`, `smoke_shared_port_gone2`, `oneshot_single_thread_send_port_close`, `issue_32114`, `send2`, `send3`, `send4` | [`no_receiver_is_left`] |
//! | `port_gone_concurrent`, `port_gone_concurrent_shared` | [`senders_notice_that_the_receiver_went`] |
//! | `smoke_chan_gone`, `smoke_chan_gone_shared`, `oneshot_single_thread_recv_chan_close` | [`no_sender_is_left`] |
//! | `chan_gone_concurrent` | [`receivers_notice_that_the_sender_went`] |
//! | `smoke_receiver_clone`, `smoke_receiver_clone_port_gone`, `receiver_cloning` | [`receivers_that_are_cloned`] |
//! | `stress`, `stress_shared`, `shared_chan_stress` | [`many_messages_of_many_senders`], `channels::every_message_arrives_once_and_in_order` |
//! | `oneshot_single_thread_close_port_first`, `…_close_chan_first` | [`ends_go_in_any_order`] |
//! | `oneshot_single_thread_send_then_recv`, `…_try_send_*`, `…_try_recv_*`, `…_peek_*`, `try_recv_states`, `try_send1`, `try_send2`, `try_send3` | [`trying_says_why_not`] |
//! | `oneshot_multi_task_recv_then_send`, `…_recv_then_close` | [`a_waiting_receiver_gets_a_message_or_an_error`] |
//! | `oneshot_multi_thread_close_stress`, `…_send_close_stress`, `…_recv_close_stress`, `…_send_recv_stress` | [`sending_receiving_and_leaving_at_once`] |
//! | `stream_send_recv_stress` | [`ends_are_passed_on`] |
//! | `oneshot_single_thread_recv_timeout`, `recv_timeout`, `send_timeout`, `recv_timeout_upgrade`, `shared_recv_timeout` | [`timeouts_of_shared_channels`], `channels::timed_operations_return_a_message_or_a_timeout` |
//! | `stress_recv_timeout_two_threads`, `stress_recv_timeout_shared` | [`short_timeouts_miss_nothing`] |
//! | `very_long_recv_timeout_wont_panic` | [`timeouts_beyond_all_clocks`] |
//! | `recv_a_lot` | [`a_lot_on_the_way`] |
//! | `test_nested_recv_iter`, `test_recv_iter_break`, `test_recv_try_iter`, `test_recv_into_iter_*` | [`loops_over_messages`] |
//! | `destroy_upgraded_shared_port_when_sender_still_active`, `issue_39364`, `issue_15761` | [`clones_that_come_late`] |
//! | `mpmc/tests.rs`: `waker_current_thread_id` | no: about the implementation |
//! | `oneshot.rs` | |
//! | `send_before_*`, `recv_before_send`, `recv_timeout_before_send`, `try_recv_empty`, `try_recv_then_drop_receiver` | [`one_message`] |
//! | `sender_drop`, `send_never_deadline`, `recv_then_drop_sender`, `drop_sender_then_recv` | [`no_message`] |
//! | `recv_no_time`, `recv_deadline_passed`, `recv_time_passed` | [`no_message`], [`deadlines_that_have_passed`] |
//! | `send_error`, `send_error_drops_*`, `message_in_channel_dropped_on_receiver_drop`, `non_send_type_can_be_used_on_same_thread` | [`an_unreceived_message_is_dropped_or_given_back`] |

#[path = "../team/mod.rs"]
mod team;

mod channels;
mod conditions;
mod locks;
mod once;
mod oneshot;

use sinew::sync::channel::{Receiver, Sender};
use sinew::sync::{Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

const fn shared<T: Send + Sync>() {}
const fn unwind_safe<T: RefUnwindSafe>() {}
const _: () = {
    shared::<Barrier>();
    shared::<Condvar>();
    shared::<Once>();
    shared::<OnceLock<String>>();
    shared::<LazyLock<String>>();
    shared::<Mutex<String>>();
    shared::<RwLock<String>>();
    shared::<Sender<String>>();
    shared::<Receiver<String>>();
    unwind_safe::<Once>();
    unwind_safe::<OnceLock<String>>();
    unwind_safe::<LazyLock<String>>();
    unwind_safe::<Sender<String>>();
    unwind_safe::<Receiver<String>>();
};

/// Returns the message of a panic.
fn caught<T>(work: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).err().expect("it should have panicked");
    match payload.downcast::<&str>() {
        Ok(text) => (*text).to_owned(),
        Err(payload) => *payload.downcast::<String>().expect("a text"),
    }
}
