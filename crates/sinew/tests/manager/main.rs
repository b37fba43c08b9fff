//! Managers of fibers inside of a foreign loop: the behaviours that folly's tests of its `fibers`
//! check, as tests of `sinew::manager`, and further guarantees.
//!
//! Where folly would wait for fibers or leak them, sinew cancels and unwinds them. A panic in a
//! task goes to a callback or into the task's future. Misuse that folly finds at run time is often
//! excluded by types here: closures own their values, and thread-bound values are not `Send`.
//!
//! A name that begins with `tasks/` belongs to the test `tasks`.
//!
//! | in folly | here, or why not |
//! | --- | --- |
//! | FibersTest.cpp: FiberManager | |
//! | `batonTimedWaitTimeout`: a timed wait without a post returns false, not before its time | [`batons::a_timed_wait_gives_up_and_not_too_early`] |
//! | `batonTimedWaitPost`: a post ends a timed wait with true, in the next turn | [`batons::a_timed_wait_ends_with_the_post`] |
//! | `batonTimedWaitTimeoutEvb`: on an event loop, each timeout ends at its own time | [`batons::timed_waits_on_an_event_loop_end_each_in_its_time`] |
//! | `batonTimedWaitPostEvb`: a timer of the event loop posts before the timeout | [`batons::a_post_of_an_event_loops_timer_ends_a_timed_wait`] |
//! | `fiberTimeLogged`: running time exists only for tasks that requested it | [`tasks::running_time_is_measured_if_requested`] |
//! | `fiberTimeWhileRunning`: it counts only the task's own processor time, across yields | [`tasks::running_time_is_the_tasks_own`] |
//! | `fiberTimeWhileAwaiting`: it can be read on the main context, and does not grow there | [`tasks::running_time_is_read_on_the_main_context_and_does_not_pass_there`] |
//! | `batonTryWait`: polling does not wait, and sees the posts of threads; an unposted baton stays unposted | [`batons::polling_a_baton_does_not_wait`] |
//! | `batonTryWaitConsistent`: after a timeout a baton can be posted and polled as before, on threads and in fibers | [`batons::a_baton_that_timed_out_is_posted_as_ever`] |
//! | `genericBatonFiberWait`: a thread wakes a waiting fiber | [`batons::a_thread_wakes_a_fiber`] |
//! | `genericBatonThreadWait`: a fiber wakes a waiting thread, without the loop | [`batons::a_fiber_wakes_a_thread`] |
//! | `addTasksNoncopyable`: results come one by one as tasks end, with their numbers; moved, not copied | [`collecting::results_come_in_the_order_of_the_ends`] |
//! | `awaitThrow`: a panic of the closure that receives the promise goes on in the awaiter, also if the promise is fulfilled | [`tasks::a_panic_in_await_with_goes_to_the_awaiter`] |
//! | `addTasksThrow`: a task that panicked gives its panic in its turn, with its number; the others give their results | [`collecting::panics_come_in_the_order_of_the_ends`] |
//! | `addTasksVoid`: tasks without results are waited for | [`collecting::tasks_without_results_are_waited_for`] |
//! | `addTasksVoidThrow`: tasks without results give their panics | [`collecting::panics_come_in_the_order_of_the_ends`] |
//! | `addTasksReserve`: waits until n tasks have ended; counts completed and pending tasks | `tasks/iterating::reserve_waits_for_that_many_tasks_at_most` |
//! | `addTaskDynamic`: tasks are added while the caller waits for others | `tasks/iterating::tasks_are_added_while_others_run` |
//! | `forEach`: a closure is called with number and result as tasks end; all have ended at its return | [`collecting::for_each_passes_on_each_result`] |
//! | `collectN`: returns the first n results, with numbers; the rest goes on | [`collecting::collect_n_returns_at_the_nth_end`] |
//! | `collectNThrow`: a panic among the first n goes on in the caller when n have ended | [`collecting::panics_among_the_first_few_go_on_in_the_caller`] |
//! | `collectNVoid`: the first n of tasks without results | [`collecting::collect_n_returns_at_the_nth_end`] |
//! | `collectNVoidThrow`: panics among the first n of tasks without results | [`collecting::panics_among_the_first_few_go_on_in_the_caller`] |
//! | `collectAll`: all results, in the order of the tasks | [`collecting::all_results_are_in_order`] |
//! | `collectAllVoid`: all tasks without results | [`collecting::all_results_are_in_order`] |
//! | `collectAny`: the first result, with its number; later panics are ignored | [`collecting::collect_any_returns_at_the_first_end`] |
//! | `runInMainContext`: outside of fibers a plain call; in a fiber it runs on the thread's stack and moves its result | [`main_context::outside_of_fibers_the_main_context_is_a_plain_call`], [`main_context::in_a_fiber_the_main_context_is_the_stack_of_the_thread`] |
//! | `runInMainContextNoInline`: a large frame there does not use the fiber's stack | [`main_context::a_small_fiber_has_a_large_stack_on_the_main_context`] |
//! | `addTaskFinally`: the result goes to a closure on the main context, in the loop | [`finally::a_result_is_handed_on_on_the_main_context`] |
//! | `fibersPoolWithinLimit`: stacks of ended tasks are used again | [`pools::stacks_within_the_limit_are_used_again`] |
//! | `fibersPoolOverLimit`: stacks beyond the limit are given back | [`pools::stacks_over_the_limit_are_given_back`] |
//! | `remoteFiberBasic`: fibers woken by threads run only in the next turn, which is requested once | [`remote::remote_wakes_continue_fibers_in_the_loop_which_is_scheduled_once`] |
//! | `addTaskRemoteBasic`: tasks of threads run in the loop and wait like others | [`remote::remote_tasks_run_in_the_loop`] |
//! | `remoteHasTasks`: a task of a thread counts before the loop has seen it | [`remote::a_remote_task_counts_before_it_runs`] |
//! | `remoteHasReadyTasks`: a wake by a thread counts too; waiting tasks count as tasks | [`remote::a_remotely_woken_fiber_counts_before_it_runs`] |
//! | `fiberLocal`: tasks inherit locals from tasks, remote ones too; a child's changes stay its own | [`locals::tasks_inherit_small_values`] |
//! | `fiberLocalHeap`: tasks inherit large locals | [`locals::tasks_inherit_large_values`] |
//! | `fiberLocalDestructor`: a local's destructor may add a task, which begins with new locals | [`locals::destructors_of_locals_may_add_tasks_which_begin_with_new_locals`] |
//! | `yieldTest`: a fiber that yields goes on in a later turn | [`tasks::a_task_that_yields_goes_on_in_the_next_turn`] |
//! | `RequestContext`: tasks of every kind inherit a context, which is kept across waits and on the main context; the loop's own context is untouched | [`locals::a_context_follows_its_task`], [`locals::the_state_of_other_code_follows_its_task`] |
//! | `resizePeriodically`: the pool shrinks from period to period to its recent use; its timer may be due at the end | [`pools::the_pool_shrinks_to_its_recent_use`] |
//! | `batonWaitTimeoutHandler`: a timeout that is started from outside, after the wait | no: a wait has its timeout from the start; a callback of the loop that posts: [`batons::a_post_of_an_event_loops_timer_ends_a_timed_wait`] |
//! | `batonWaitTimeoutHandlerExecutor`: timeouts work on an executor | [`controllers::executors::an_executor_is_woken_for_timers`] |
//! | `batonWaitTimeoutMany`: ten thousand timeouts begin and end | [`batons::thousands_of_timed_waits_end`] |
//! | `remoteFutureTest`: futures of local and remote tasks have their values after the loop | [`tasks::a_future_has_the_result_when_the_task_has_ended`], [`remote::results_go_back_to_the_asking_thread`] |
//! | `remoteFutureVoidUnitTest`: futures without values | the two tests above |
//! | `nestedFiberManagers`: a loop inside of a fiber's main context; the current fiber before and after | [`nested::a_loop_runs_on_the_main_context_of_another`], [`nested::event_loops_run_inside_of_each_other`] |
//! | `nestedFiberManagersSameEvb`: a loop caches its managers by options; tasks of one manager wait for tasks of another | [`managers::a_loop_has_one_manager_for_each_set_of_options`], [`managers::tasks_of_one_manager_wait_for_tasks_of_another`] |
//! | `virtualEvbFiberManager`: a virtual event base has its own managers | no virtual loops; told apart by type: [`managers::managers_are_told_apart_by_type`] |
//! | `semaphore`: permits are conserved between fibers of many threads, however acquired | [`interop::permits::permits_of_many_managers_are_conserved`] |
//! | `SemaphoreCoTryWaitForCanCancelOrTimeout`: a wait for a permit is cancelled before or during the wait, or times out | `signals::permits_are_conserved`, `cancelling::every_wait_can_be_cancelled` |
//! | `StressTestSemaphoreCoTryWaitFor`: timeouts that race with permits lose none | `signals::permits_are_conserved` |
//! | `batchSemaphore`: several permits at a time are conserved | [`interop::permits::permits_of_many_managers_are_conserved`] |
//! | `batchSemaphoreSignalAll`: waiters for growing counts all get their permits | [`interop::permits::permits_of_different_counts_reach_every_waiter`] |
//! | `batchDispatchTest`: values of tasks of one turn are dispatched together, twice | `tasks/batches::values_of_all_ready_fibers_are_one_batch` |
//! | `doubleBatchDispatchTest`: a dispatch that uses another dispatcher | `tasks/batches::dispatch_functions_use_dispatchers` |
//! | `batchDispatchExceptionHandlingTest`: a panic of the dispatch reaches every task | `tasks/batches::a_panic_is_an_error_for_all_and_the_next_batch_is_not_harmed` |
//! | `ABDTest`: after the commit and the last token, all inputs in the order of the tokens | `tasks/tokens::values_are_in_the_order_of_the_tokens` |
//! | `ABDDispatcherdestroyedbeforecallingcommit`: without a commit every token gets an error | `tasks/tokens::a_dispatcher_that_was_not_committed_fails_the_batch_when_all_are_gone` |
//! | `ABDPreprocessingfailuretest`: a dropped token fails the others, and their error names it | `tasks/tokens::tokens_that_were_dropped_fail_the_batch_when_all_are_gone` |
//! | `ABDMultipledispatchonsametokenerrortest`: a token is used once | by type: `dispatch` takes the token |
//! | `ABDGettokencalledaftercommittest`: no tokens after the commit, which changes nothing else | by type: `commit` takes the dispatcher |
//! | `ABDUserprovidedbatchdispatchthrowstest`: a panic of the dispatch reaches every task | `tasks/tokens::a_panic_is_an_error_for_all_and_does_not_unwind_the_last_caller` |
//! | `VirtualEventBase`: two loops on one thread: one ends with its own tasks, the other goes on | no virtual loops; [`managers::managers_of_one_loop_end_their_tasks_each_in_its_time`] |
//! | `highWaterMarkViaRecordStackEvery`: the deepest use of a stack is measured | [`pools::the_high_water_mark_is_measured_if_requested`] |
//! | `highWaterMarkViaRecordCurrentPosition`: the depth at each wait counts too | the test above; measured only if requested |
//! | `addTaskEager`: runs at once to its first wait, before tasks that were added earlier | [`eager::an_eager_task_runs_to_its_first_wait_before_all_others`] |
//! | `addTaskEagerFuture`: is ready at once if it did not wait, otherwise after the loop | [`eager::an_eager_task_that_does_not_wait_has_ended`], [`eager::an_eager_task_that_waits_ends_in_the_loop`] |
//! | `addTaskEagerNested`: added by a fiber, with a call of the main context inside; the adder goes on first | [`eager::an_eager_task_of_a_fiber_runs_before_the_fiber_goes_on`] |
//! | `addTaskEagerNestedFiberManager`: added to another manager: the first has no active fiber meanwhile | [`eager::an_eager_task_of_another_manager_suspends_the_first_one`] |
//! | `swapWithException`: the main context may be called while unwinding; waiting then ends the process | [`tasks::a_fiber_waits_and_leaves_its_stack_while_it_unwinds`]: waiting is allowed here |
//! | `loopInCatch`: a loop runs while an exception is being handled | [`tasks::a_loop_runs_where_a_panic_was_caught`] |
//! | `loopInUnwind`: a loop runs in destructors during unwinding | [`tasks::a_loop_runs_while_its_thread_unwinds`] |
//! | `addTaskRemoteFutureTry`: a result that is itself a result is not flattened | [`remote::results_go_back_to_the_asking_thread`] |
//! | `addTaskEagerKeepAlive`: a task that waits keeps an ending loop running | [`eager::an_eager_task_keeps_its_loop_running`]; a loop that is dropped cancels: [`managers::the_managers_end_with_their_loop`] |
//! | `fibersPreserveAsyncStackRoots`: the thread's async stack belongs to the fiber while it runs | no async stacks; as state of other code: [`locals::the_state_of_other_code_follows_its_task`] |
//! | `EventBaseMigratingThreads`: another thread drives a loop later on | no: managers and loops are not `Send` (`sinew::manager`, `compile_fail`) |
//! | FibersTest.cpp: TimedMutex, TimedRWMutex | |
//! | `ThreadsAndFibersDontDeadlock`: threads and fibers contend for a mutex held across waits | [`interop::locks::threads_and_fibers_do_not_deadlock_each_other`] |
//! | `ThreadFiberDeadlockOrder`: the loop's thread gets a lock that a fiber that cannot run requested first | [`main_context::the_main_context_gets_a_lock_that_a_fiber_waits_for`] |
//! | `ThreadFiberDeadlockRace`: the thread gets the lock even if that fiber was already woken for it | [`main_context::the_main_context_gets_a_lock_that_was_unlocked_for_a_fiber`] |
//! | `CoLockUncontended`, `CoLockContended`, `CoLockSingleThreadContended`, `CoScopedLock`: locks of coroutines | no: there are no coroutines; fibers lock: `locks::one_at_a_time`, [`interop::locks::mutexes`] |
//! | `CoLockAndThreadLockContended`, `CoLockAndFiberLockContended`: coroutines, threads and fibers share a lock | [`interop::locks::mutexes`] |
//! | `FiberHoldsLockCoroCoAwaits`: a coroutine awaited in one fiber waits for another fiber | [`interop::fibers::futures_in_fibers_wait_for_neighbours`] |
//! | `FiberSyncLockFromCoroOnFiberTakesThreadPath`: a coroutine that is awaited in a fiber is not on a fiber | differs: a future that is awaited in a fiber runs in it and may wait as one: [`interop::fibers::futures_in_fibers_wait_for_neighbours`] |
//! | `FiberAndCoroAlternateLock`, `MultipleFibersWithCoroCoAwait`: coroutines in fibers lock in turn | [`interop::locks::mutexes`] |
//! | `CoLockPreCancelled`, `CoLockCancelledWhileWaiting`, `CoLockNotCancelledIfLockAcquired`: cancelled waits for a lock | `locks::a_cancelled_waiter_leaves_the_lock_alone`, `cancelling::every_wait_can_be_cancelled` |
//! | `CoLockCancelRaceWithUnlock`: a cancellation that races with the unlock ends the wait once | `cancelling::wakes_that_race_a_cancellation_end_the_wait_once` |
//! | `CoLockTimeoutNoDiscard`: a lock with a timeout | `locks::a_timed_lock_gives_up`, [`interop::locks::timed_locks`] |
//! | `MultipleThreadsReadPriority`, `MultipleThreadsWritePriority`: readers and writers of managers on several threads; some writers downgrade | [`interop::locks::readers_and_writers_of_many_managers`]; priorities: `readers_and_writers::waiters_are_served_by_their_priority` |
//! | other files | |
//! | `SemaphoreTest: MessagePassing`: a permit publishes earlier writes | [`interop::permits::a_permit_publishes_earlier_writes`] |
//! | `BatchSemaphoreTest: WaitSignalSynchronization`: several permits publish earlier writes | the test above |
//! | `FibersTestApp`: a program with a few requests in progress | [`tasks::a_few_requests_are_in_progress_at_a_time`] |
//! | `StackOverflow`: a stack overflow ends the process with a report | [`pools::an_overflow_is_reported`] |
//! | `FibersBenchmark`, `TimedMutexBenchmark`: costs | no tests: `bench/` |
//! | the diagram of states in Fiber.h | |
//! | arrow 1: invalid to not started: added | [`states::arrow_1_an_added_task_has_not_started`] |
//! | arrow 2: not started to running | [`states::arrow_2_a_task_that_has_begun_runs`] |
//! | arrow 3: running to invalid: ended | [`states::arrow_3_an_ended_task_is_invalid`] |
//! | arrow 4: running to yielded | [`states::arrow_4_a_task_that_yields_has_yielded`] |
//! | arrow 5: running to awaiting | [`states::arrow_5_a_task_that_waits_is_awaiting`] |
//! | arrow 6: running to awaiting immediate: main context | [`states::arrow_6_a_task_waits_for_its_call_of_the_main_context`] |
//! | arrow 7: yielded to ready | [`states::arrow_7_a_task_that_yielded_is_ready_after_the_turn`] |
//! | arrow 8: awaiting to ready: woken | [`states::arrow_8_a_woken_task_is_ready`], [`states::arrow_8_a_task_woken_by_a_thread_is_ready`] |
//! | arrow 9: awaiting immediate to ready | [`states::arrow_9_a_task_continues_after_its_call_of_the_main_context`], [`states::arrow_9_a_task_continues_after_a_panic_on_the_main_context`] |
//! | arrow 10: ready to running | [`states::arrow_10_a_ready_task_runs`] |

mod abuse;
mod batons;
mod collecting;
mod controllers;
mod dropping;
mod eager;
mod ends;
mod finally;
mod hooks;
mod interop;
mod io;
mod kit;
mod locals;
mod main_context;
mod managers;
mod nested;
mod observers;
mod options;
mod order;
mod panics;
mod pools;
mod remote;
mod resting;
mod states;
mod tasks;
mod types;
