//! Files, on every backend of this system.

mod cancelled;
mod contents;
mod errors;
mod limits;
mod listings;
mod special;
mod together;

use sinew::runtime::Backend;
use sinew::{FiberState, JoinHandle, Runtime};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs `body` as a fiber on each backend, with one carrier and with two.
fn on_each(body: impl Fn() + Send + Sync + Copy + 'static) {
    let _watch = sinew_testkit::watch::a_minute();
    for backend in [Backend::Epoll, Backend::Uring, Backend::Poll] {
        if !backend.is_supported() {
            continue;
        }
        for carriers in [1, 2] {
            let runtime = Runtime::builder().carriers(carriers).backend(backend).build().unwrap();
            runtime
                .spawn(body)
                .join()
                .unwrap_or_else(|_| panic!("failed on {backend:?} with {carriers} carriers"));
        }
    }
}

/// A folder for one test, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn on_disk() -> Folder {
        Folder::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Returns a folder on a disk, and one in memory if the system has a place for it.
    fn each() -> Vec<Folder> {
        let memory = Path::new("/dev/shm");
        let mut folders = vec![Folder::on_disk()];
        if memory.is_dir() {
            folders.push(Folder::below(memory));
        }
        folders
    }

    fn below(parent: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("sinew-files-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns bytes of which each encodes its own offset.
fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Makes the kernel drop its cache of a file, so that reads go to the disk.
fn make_cold(path: &Path) {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: a valid descriptor; advice changes no contents.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Returns when a fiber waits, or has ended.
fn until_it_waits<T>(fiber: &JoinHandle<T>) {
    while !fiber.is_finished() && fiber.fiber().state() != FiberState::Suspended {
        sinew::yield_now();
    }
}
