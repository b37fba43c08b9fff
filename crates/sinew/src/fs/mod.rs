//! Files with the methods of `std::fs`, for fibers.
//!
//! Bytes go by the way that keeps the carrier least: from memory directly, from a disk by the ring of
//! the kernel or a thread that may block. Whatever is done by name is done by such a thread. Other
//! fibers run meanwhile. Plain threads block. A [pinned](crate::pinned) fiber blocks its carrier, which
//! [`pinned_wait`](crate::runtime::Builder::pinned_wait) has reported, refused by a panic, or passed over.
//!
//! A fiber that is cancelled is unwound from reading and writing if nothing was moved. What is done by
//! a thread is waited for: the next wait raises.

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
