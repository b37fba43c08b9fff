//! Files with the methods of `std::fs`, for fibers.
//!
//! Each transfer of bytes takes the way that occupies the carrier least. Bytes in memory are copied
//! directly. For bytes on a disk, the kernel's ring (`io_uring`) or a thread that may block does
//! the work, and other fibers run meanwhile. Every operation that takes a path runs on such a
//! thread.
//!
//! Plain threads block. A [pinned](crate::pinned) fiber blocks its carrier;
//! [`pinned_wait`](crate::runtime::Builder::pinned_wait) decides whether that is reported, a panic,
//! or silent.
//!
//! A cancelled fiber is unwound from a read or write only if no byte was moved. If a thread does
//! the work, the fiber waits until the thread is done, and is unwound from its next wait.

// `transfer.rs` moves the bytes, through `reactor::ring` or `blocking`. `paths.rs` has the
// operations that take a path, all through `blocking`. Next: `transfer.rs`.

mod builder;
mod file;
mod kind;
mod listing;
mod options;
pub(crate) mod paths;
mod stream;
mod transfer;
mod whole;

pub use builder::DirBuilder;
pub use file::File;
pub use listing::{DirEntry, ReadDir, read_dir};
pub use options::OpenOptions;
pub use paths::{
    canonicalize, create_dir, create_dir_all, exists, hard_link, metadata, read_link, remove_dir,
    remove_dir_all, remove_file, rename, set_permissions, symlink_metadata,
};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};
pub use whole::{copy, read, read_to_string, write};
