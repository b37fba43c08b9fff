//! Which types may move to another thread, and which may not. An example in the documentation of
//! `RemoteHandle`, which must not compile, shows that a closure that is not `Send` cannot be added
//! from another thread.

use sinew::manager::{
    EventLoop, ExecutorLoopController, FiberManager, KeepAlive, LoopRemote, ManagerHandle, Options,
    Promise, ReactorLoopController, RemoteHandle, Runner, SimpleLoopController, TaskFuture,
    TaskOptions,
};
use sinew::tasks::{AtomicBatchDispatcher, BatchDispatcher, BatchFuture, BatchToken, TaskIterator};
use std::future::Future;
use std::rc::Rc;

/// Does not compile for a type that has the trait, because two implementations would match.
macro_rules! is_not {
    ($trait:ident: $($type:ty),* $(,)?) => {$({
        trait Ambiguous<Which> {
            fn check() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $trait> Ambiguous<u8> for T {}
        <$type as Ambiguous<_>>::check();
    })*};
}

#[test]
fn types_bound_to_a_thread_are_not_send() {
    is_not!(Send: FiberManager, ManagerHandle, EventLoop, Runner, Options, TaskFuture<Rc<u32>>, KeepAlive,
        SimpleLoopController, ReactorLoopController, Promise<Rc<u32>>);
    is_not!(Sync: FiberManager, ManagerHandle, EventLoop, Runner, Options, TaskFuture<u32>, TaskFuture<Rc<u32>>,
        KeepAlive, SimpleLoopController, ReactorLoopController, ExecutorLoopController, Promise<Rc<u32>>);
}

#[test]
fn collectors_are_send_only_if_their_results_are() {
    is_not!(Send: TaskIterator<u8>, BatchDispatcher<u8, u8>, BatchFuture<Rc<()>>,
        AtomicBatchDispatcher<Rc<()>, u8>, AtomicBatchDispatcher<u8, Rc<()>>, BatchToken<Rc<()>, u8>,
        BatchToken<u8, Rc<()>>);
    is_not!(Sync: TaskIterator<u8>, BatchDispatcher<u8, u8>, BatchFuture<Rc<()>>,
        AtomicBatchDispatcher<Rc<()>, u8>, BatchToken<Rc<()>, u8>);
}

#[test]
fn remote_handles_are_send() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<RemoteHandle>();
    sync::<RemoteHandle>();
    send::<LoopRemote>();
    sync::<LoopRemote>();
    send::<TaskFuture<u32>>();
    send::<TaskFuture<std::cell::Cell<u32>>>();
    send::<Promise<u32>>();
    send::<TaskOptions>();
}

#[test]
fn handles_and_options_are_copied() {
    fn clone<T: Clone>() {}
    clone::<ManagerHandle>();
    clone::<RemoteHandle>();
    clone::<Runner>();
    clone::<Options>();
    clone::<TaskOptions>();
    fn future<T: Future<Output = std::thread::Result<u32>>>() {}
    future::<TaskFuture<u32>>();
}
