//! Tests that run on every backend there is.

use sinew::Runtime;
use sinew::runtime::Backend;
use sinew_testkit::watch;

/// Runs `test` with a runtime of each backend that is supported here, on one carrier and on two.
pub(crate) fn on_each(test: impl Fn(&Runtime)) {
    let _watch = watch::a_minute();
    let backends = [Backend::Epoll, Backend::Kqueue, Backend::Poll];
    for backend in backends.into_iter().filter(|backend| backend.is_supported()) {
        for carriers in [1, 2] {
            let name = format!("{backend:?} with {carriers}");
            let builder = Runtime::builder().carriers(carriers).name(name).backend(backend);
            test(&builder.build().unwrap());
        }
    }
}
