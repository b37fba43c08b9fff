//! Many fibers use one file, while other fibers run.

use super::{Folder, make_cold, on_each, pattern};
use sinew::fs::{self, File, OpenOptions};
use sinew::runtime::Backend;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn positioned_reads_and_writes_of_sixteen_fibers_do_not_mix() {
    const FIBERS: usize = 16;
    const PIECE: usize = 10_007;
    const PIECES: usize = 12;
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("shared");
            let file = Arc::new(File::create_new(&path).unwrap());
            let fibers: Vec<_> = (0..FIBERS)
                .map(|fiber| {
                    let file = file.clone();
                    sinew::spawn(move || {
                        let places = (0..PIECES).map(|piece| (piece * FIBERS + fiber) * PIECE);
                        for place in places.clone() {
                            file.write_all_at(&pattern(place, PIECE), place as u64).unwrap();
                        }
                        let mut buffer = vec![0; PIECE];
                        for place in places {
                            file.read_exact_at(&mut buffer, place as u64).unwrap();
                            assert!(buffer == pattern(place, PIECE), "piece at {place}");
                        }
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            make_cold(&path);
            let readers: Vec<_> = (0..FIBERS)
                .map(|fiber| {
                    let file = file.clone();
                    sinew::spawn(move || {
                        let mut buffer = vec![0; PIECE * PIECES];
                        let place = fiber * PIECE * PIECES;
                        file.read_exact_at(&mut buffer, place as u64).unwrap();
                        assert!(buffer == pattern(place, buffer.len()), "piece at {place}");
                    })
                })
                .collect();
            readers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert!(std::fs::read(&path).unwrap() == pattern(0, FIBERS * PIECE * PIECES));
        }
    });
}

/// A ring that writes at the file position takes no lock for it.
#[test]
fn writers_that_share_a_file_position_overwrite_nothing() {
    const FIBERS: u32 = 16;
    const RECORDS: u32 = 60;
    on_each(|| {
        for (folder, append) in Folder::each().iter().flat_map(|one| [(one, false), (one, true)]) {
            let path = folder.file(if append { "appended" } else { "log" });
            let options = OpenOptions::new().write(true).append(append).create(true).clone();
            let file = Arc::new(options.open(&path).unwrap());
            let fibers: Vec<_> = (0..FIBERS)
                .map(|fiber| {
                    let file = file.clone();
                    sinew::spawn(move || {
                        for record in 0..RECORDS {
                            let number = fiber * RECORDS + record;
                            assert_eq!((&*file).write(&number.to_le_bytes()).unwrap(), 4);
                        }
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            let mut records = records(&std::fs::read(&path).unwrap());
            records.sort_unstable();
            assert_eq!(records, (0..FIBERS * RECORDS).collect::<Vec<_>>());
        }
    });
}

#[test]
fn readers_that_share_a_file_position_get_each_byte_once() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("queue");
            let bytes: Vec<_> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
            std::fs::write(&path, bytes).unwrap();
            make_cold(&path);
            let file = Arc::new(File::open(&path).unwrap());
            let fibers: Vec<_> = (0..8)
                .map(|_| {
                    let file = file.clone();
                    sinew::spawn(move || {
                        let mut read = Vec::new();
                        let mut buffer = [0; 4000];
                        while (&*file).read(&mut buffer).unwrap() == buffer.len() {
                            read.extend(records(&buffer));
                        }
                        read
                    })
                })
                .collect();
            let mut all: Vec<_> =
                fibers.into_iter().flat_map(|fiber| fiber.join().unwrap()).collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..100_000), "{} records", all.len());
        }
    });
}

fn records(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|record| u32::from_le_bytes(record.try_into().unwrap())).collect()
}

/// Runs `work` while another fiber of this runtime counts. Returns the count.
fn count_during(work: impl FnOnce()) -> usize {
    let (count, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, end) = (count.clone(), done.clone());
    let other = sinew::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            counter.fetch_add(1, Ordering::Relaxed);
            sinew::yield_now();
        }
    });
    sinew::wait_until(|| count.load(Ordering::Relaxed) > 0);
    let before = count.load(Ordering::Relaxed);
    work();
    let after = count.load(Ordering::Relaxed);
    done.store(true, Ordering::Relaxed);
    other.join().unwrap();
    after - before
}

/// Says whether another fiber ran in at least one of many runs of `work`, each after `prepare`. A
/// single run may be over before it waits: the system had read ahead, or no thread was scheduled in
/// between. With one carrier, work that keeps its carrier lets no other fiber run.
fn others_run_during(prepare: impl Fn(), mut work: impl FnMut()) -> bool {
    (0..100).any(|_| {
        prepare();
        count_during(&mut work) > 0
    })
}

#[test]
fn other_fibers_run_while_the_disk_works() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("slow");
        std::fs::write(&path, pattern(0, 1 << 22)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let cold = || make_cold(&path);
        assert!(others_run_during(cold, || file.read_exact_at(&mut buffer, 0).unwrap()));
        let cold_from_the_start = || {
            make_cold(&path);
            (&file).rewind().unwrap();
        };
        assert!(others_run_during(cold_from_the_start, || {
            (&file).read_exact(&mut buffer).unwrap();
        }));
        let as_it_is = || {};
        assert!(others_run_during(as_it_is, || {
            file.write_all_at(&buffer, 5).unwrap();
            file.sync_all().unwrap();
        }));
        assert!(others_run_during(as_it_is, || assert!(fs::exists(&path).unwrap())));
        assert!(others_run_during(as_it_is, || {
            assert!(fs::read(&path).unwrap().len() >= 1 << 22);
        }));
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
        if let Ok(direct) = direct {
            let start = buffer.as_ptr().align_offset(4096);
            let block = &mut buffer[start..start + 4096];
            assert!(others_run_during(as_it_is, || direct.read_exact_at(block, 0).unwrap()));
        }
    });
}

#[test]
fn other_fibers_run_while_a_fiber_reads_from_memory_without_end() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("endless");
            std::fs::write(&path, "x").unwrap();
            let file = File::open(&path).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let stopper = stop.clone();
            let other = sinew::spawn(move || stopper.store(true, Ordering::Relaxed));
            while !stop.load(Ordering::Relaxed) {
                file.read_exact_at(&mut [0], 0).unwrap();
            }
            other.join().unwrap();
        }
    });
}

/// Predicates run where waiting is not allowed, however much they read.
#[test]
fn a_predicate_reads_files() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("awaited");
            std::fs::write(&path, "no").unwrap();
            let file = File::open(&path).unwrap();
            let name = path.clone();
            let other = sinew::spawn(move || {
                (0..100).for_each(|_| sinew::yield_now());
                std::fs::write(name, "yes").unwrap();
            });
            let is_there = || {
                assert!(fs::exists(&path).unwrap());
                (0..100).any(|_| file.read_at(&mut [0; 3], 0).unwrap() == 3)
            };
            sinew::wait_until(is_there);
            other.join().unwrap();
        }
    });
}

/// Reads that bypass the cache need aligned buffers.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// Returns a file of 64 numbered blocks for reads that bypass the cache, or `None` if the file
/// system does not support that.
fn numbered_blocks(folder: &Folder) -> Option<Arc<File>> {
    let path = folder.file("blocks");
    let mut bytes = vec![0; 64 * 4096];
    for (number, block) in bytes.chunks_mut(4096).enumerate() {
        block[..4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    make_cold(&path);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
    file.ok().map(Arc::new)
}

/// A ring that reads at the file position would give every reader the same bytes.
#[test]
fn uncached_readers_that_share_a_file_position_get_each_byte_once() {
    on_each(|| {
        let folder = Folder::on_disk();
        let Some(file) = numbered_blocks(&folder) else {
            println!("skipped: the file system has no O_DIRECT");
            return;
        };
        let fibers: Vec<_> = (0..64)
            .map(|_| {
                let file = file.clone();
                sinew::spawn(move || {
                    let mut block = Box::new(Block([0; 4096]));
                    assert_eq!((&*file).read(&mut block.0).unwrap(), 4096);
                    records(&block.0)[0]
                })
            })
            .collect();
        let mut numbers: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..64), "{numbers:?}");
    });
}

fn round_trip(folder: &Folder, name: &str) {
    let path = folder.file(name);
    let mut file = File::create_new(&path).unwrap();
    file.write_all(&pattern(0, 10_000)).unwrap();
    file.sync_all().unwrap();
    make_cold(&path);
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, pattern(0, 10_000));
    file.write_all_at(b"end", 10_000).unwrap();
    file.read_exact_at(&mut bytes[..3], 10_000).unwrap();
    assert_eq!(&bytes[..3], b"end");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    fs::remove_file(path).unwrap();
}

#[test]
fn plain_threads_use_files() {
    let _watch = sinew_testkit::watch::a_minute();
    for folder in Folder::each() {
        round_trip(&folder, "thread");
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
    let thread = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    writer.write_all(b"piped").unwrap();
    drop(writer);
    assert_eq!(thread.join().unwrap(), "piped");
}

#[test]
fn pinned_fibers_use_files() {
    on_each(|| {
        for folder in Folder::each() {
            sinew::pinned(|| round_trip(&folder, "pinned"));
        }
    });
}

#[test]
fn fibers_that_move_use_files() {
    let _watch = sinew_testkit::watch::a_minute();
    for backend in [Backend::Epoll, Backend::Uring, Backend::Poll] {
        if !backend.is_supported() {
            continue;
        }
        let runtime = sinew::Runtime::builder().carriers(2).backend(backend).build().unwrap();
        runtime.spawn(migrating).join().unwrap();
    }
}

fn migrating() {
    let folder = Arc::new(Folder::on_disk());
    let path = folder.file("moved");
    std::fs::write(&path, pattern(0, 1 << 20)).unwrap();
    make_cold(&path);
    let file = Arc::new(File::open(&path).unwrap());
    let fibers: Vec<_> = (0..32_usize)
        .map(|fiber| {
            let file = file.clone();
            // SAFETY: the closure keeps nothing that belongs to a thread across its waits.
            let builder = unsafe { sinew::FiberBuilder::new().migratable() };
            let read = move || {
                let mut buffer = [0; 4096];
                for block in (0..256).skip(fiber % 7).step_by(5) {
                    let place = block * 4096;
                    file.read_exact_at(&mut buffer, place as u64).unwrap();
                    assert!(buffer[..] == pattern(place, 4096));
                    sinew::yield_now();
                }
            };
            builder.spawn(read).unwrap()
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}
