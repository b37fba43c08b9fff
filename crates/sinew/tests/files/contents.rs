//! Bytes that were written are read back.

use super::{Folder, make_cold, on_each, pattern};
use sinew::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

#[test]
fn written_bytes_are_read_back() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("round");
            for size in [0, 1, 4095, 4096, 4097, 1 << 20] {
                let bytes = pattern(size, size);
                fs::write(&path, &bytes).unwrap();
                assert_eq!(fs::read(&path).unwrap(), bytes);
                make_cold(&path);
                let mut read = Vec::new();
                let count = File::open(&path).unwrap().read_to_end(&mut read).unwrap();
                assert_eq!((count, &read), (size, &bytes));
                let mut file = File::create(&path).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_data().unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), bytes);
            }
        }
    });
}

#[test]
fn sequential_reads_of_many_sizes_give_every_byte_once() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("sequence");
            let bytes = pattern(0, 300_000);
            std::fs::write(&path, &bytes).unwrap();
            for size in [1, 7, 512, 4096, 65_536, 299_999, 300_000, 400_000] {
                make_cold(&path);
                let mut file = File::open(&path).unwrap();
                let mut buffer = vec![0; size];
                let mut read = Vec::new();
                // For single bytes, the beginning of the file is enough.
                while read.len() < bytes.len().min(size * 2000) {
                    let count = file.read(&mut buffer).unwrap();
                    // A regular file returns all that it has, also bytes that must be read from the
                    // disk.
                    assert_eq!(count, size.min(bytes.len() - read.len()));
                    read.extend_from_slice(&buffer[..count]);
                }
                assert_eq!(read, bytes[..read.len()]);
            }
        }
    });
}

/// The kernel returns the cached part, and the rest comes from the disk.
#[test]
fn a_read_of_a_partly_cached_file_is_complete() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("partly");
        let bytes = pattern(0, 4 << 20);
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        for split in [1, 4096, 5000] {
            make_cold(&path);
            file.read_at(&mut [0], 0).unwrap();
            let mut buffer = vec![0; 3 << 20];
            assert_eq!(file.read_at(&mut buffer, 1).unwrap(), buffer.len());
            assert_eq!(buffer, bytes[1..][..buffer.len()]);
            make_cold(&path);
            file.read_at(&mut [0], 0).unwrap();
            let (first, second) = buffer.split_at_mut(split);
            (&file).rewind().unwrap();
            let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
            let count = (&file).read_vectored(&mut parts).unwrap();
            assert_eq!(count, 3 << 20);
            assert_eq!(buffer, bytes[..count]);
            assert_eq!((&file).stream_position().unwrap(), 3 << 20);
        }
    });
}

#[test]
fn vectored_reads_and_writes_keep_the_order() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("vectored");
            let bytes = pattern(0, 100_000);
            // More parts than one call takes.
            let parts: Vec<_> = bytes.chunks(37).map(IoSlice::new).collect();
            let mut file = File::options().read(true).write(true).create(true).open(&path).unwrap();
            let written = file.write_vectored(&parts).unwrap();
            assert_eq!(written, 1024 * 37);
            assert_eq!(std::fs::read(&path).unwrap(), bytes[..written]);
            file.rewind().unwrap();
            let mut read = vec![0; written];
            let mut parts: Vec<_> = read.chunks_mut(41).map(IoSliceMut::new).collect();
            assert_eq!(file.read_vectored(&mut parts).unwrap(), written);
            assert_eq!(read, bytes[..written]);
            assert_eq!(file.read_vectored(&mut []).unwrap(), 0);
            assert_eq!(file.write_vectored(&[]).unwrap(), 0);
        }
    });
}

#[test]
fn appending_writes_at_the_end_whatever_the_position() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("append");
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(b"one").unwrap();
            file.rewind().unwrap();
            file.write_all(b"two").unwrap();
            std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"!").unwrap();
            file.write_all(b"three").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"onetwo!three");
        }
    });
}

#[test]
fn seeking_works_as_in_the_standard_library() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("seek");
            std::fs::write(&path, pattern(0, 1000)).unwrap();
            let mut ours = File::open(&path).unwrap();
            let mut theirs = std::fs::File::open(&path).unwrap();
            let steps = [
                SeekFrom::End(-10),
                SeekFrom::Current(-20),
                SeekFrom::Start(5),
                SeekFrom::End(100),
                SeekFrom::Current(-5000),
                SeekFrom::Start(u64::MAX),
            ];
            for step in steps {
                let (here, there) = (ours.seek(step), theirs.seek(step));
                assert_eq!(here.as_ref().ok(), there.as_ref().ok(), "{step:?}");
                assert_eq!(here.err().map(|e| e.kind()), there.err().map(|e| e.kind()));
                let (mut a, mut b) = ([0; 4], [0; 4]);
                assert_eq!(ours.read(&mut a).unwrap(), theirs.read(&mut b).unwrap());
                assert_eq!(a, b);
            }
        }
    });
}

#[test]
fn holes_read_as_zeros() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("holes");
            let file = File::create_new(&path).unwrap();
            file.write_all_at(b"far", 1 << 32).unwrap();
            assert_eq!(file.metadata().unwrap().len(), (1 << 32) + 3);
            let mut buffer = [1; 5];
            file.read_exact_at(&mut buffer, (1 << 32) - 2).unwrap();
            assert_eq!(&buffer, b"\0\0far");
            file.set_len(2).unwrap();
            assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 0);
        }
    });
}

#[test]
fn text_is_appended_and_checked() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("text");
        std::fs::write(&path, "tail").unwrap();
        let mut text = String::from("head, ");
        assert_eq!(File::open(&path).unwrap().read_to_string(&mut text).unwrap(), 4);
        assert_eq!(text, "head, tail");
        std::fs::write(&path, b"\xff").unwrap();
        let ours = fs::read_to_string(&path).unwrap_err();
        let theirs = std::fs::read_to_string(&path).unwrap_err();
        assert_eq!((ours.kind(), ours.to_string()), (theirs.kind(), theirs.to_string()));
        let error = File::open(&path).unwrap().read_to_string(&mut text).unwrap_err();
        assert_eq!(error.kind(), theirs.kind());
        assert_eq!(text, "head, tail");
    });
}

#[test]
fn copies_have_contents_and_permissions() {
    on_each(|| {
        let folder = Folder::on_disk();
        let (from, to) = (folder.file("from"), folder.file("to"));
        let options =
            OpenOptions::new().write(true).create_new(true).mode(0o640).custom_flags(0).clone();
        options.open(&from).unwrap().write_all(b"contents").unwrap();
        assert_eq!(fs::copy(&from, &to).unwrap(), 8);
        assert_eq!(std::fs::read(&to).unwrap(), b"contents");
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o640);
    });
}

#[test]
fn a_file_is_converted_there_and_back() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("converted");
        std::fs::write(&path, "0123456789").unwrap();
        let mut file = File::open(&path).unwrap();
        let mut clone = file.try_clone().unwrap();
        let mut buffer = [0; 3];
        file.read_exact(&mut buffer).unwrap();
        clone.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"345");
        let mut plain = std::fs::File::from(clone);
        plain.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"678");
        let file = File::from(OwnedFd::from(file));
        assert!(format!("{file:?}").contains("converted"));
        fn by_trait(file: &impl FileExt) -> [u8; 2] {
            let mut buffer = [0; 2];
            file.read_exact_at(&mut buffer, 1).unwrap();
            buffer
        }
        assert_eq!(&by_trait(&file), b"12");
    });
}

#[test]
fn direct_io_is_correct() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("direct");
        std::fs::write(&path, pattern(0, 1 << 16)).unwrap();
        let flags = libc::O_DIRECT;
        let Ok(file) = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)
        else {
            println!("skipped: the file system has no O_DIRECT");
            return;
        };
        #[repr(align(4096))]
        struct Block([u8; 8192]);
        let mut block = Block([0; 8192]);
        assert_eq!(file.read_at(&mut block.0, 4096).unwrap(), 8192);
        assert_eq!(block.0[..], pattern(4096, 8192));
        block.0.fill(7);
        assert_eq!(file.write_at(&block.0, 0).unwrap(), 8192);
        assert_eq!((&file).read(&mut block.0).unwrap(), 8192);
        assert_eq!(block.0, [7; 8192]);
        // An unaligned read is an error, or correct.
        match file.read_at(&mut block.0[1..100], 1) {
            Ok(count) => assert_eq!(block.0[1..=count], [7; 8192][..count]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput),
        }
    });
}
