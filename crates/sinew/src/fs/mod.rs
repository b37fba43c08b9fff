//! Files with the methods of `std::fs`, for fibers.

mod file;
mod kind;
mod transfer;

pub use file::File;
