//! A pool at the limits of the process: mappings, and open files. A program of its own, since other
//! tests would not run at these limits.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use freehold_pool::{Image, ModuleKey, Pool, PoolError, Slot};
use rustix::process::{Resource, getrlimit, setrlimit};

const PAGE: usize = 64 << 10;

fn pool(slots: u32) -> Pool {
    Pool::builder().slots(slots).slot_bytes(8 * PAGE).guard_bytes(PAGE).cpus(1).build().unwrap()
}

fn image(page: usize, byte: u8) -> Image {
    Image::new(page * PAGE, &[byte; 2 * PAGE]).unwrap()
}

#[test]
fn pools_at_the_limits() {
    files_that_images_have_open_are_closed();
    no_more_open_files();
    let limit: u32 =
        fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if limit > 1 << 20 {
        eprintln!("SKIPPED: vm.max_map_count is {limit}, more than a test should reach");
        return;
    }
    no_more_mappings(limit);
    a_burst_gives_mappings_back(limit);
    slots_that_wait_give_mappings_to_calls_that_fail(limit);
    threads_that_are_short_of_mappings_lose_nothing(limit);
}

fn image_files() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let names = links.filter_map(|link| fs::read_link(link).ok());
    names.filter(|name| name.to_string_lossy().contains("freehold-image")).count()
}

fn files_that_images_have_open_are_closed() {
    let (pool, one, other) = (pool(1), image(0, 1), image(0, 2));
    drop(pool.take_with(None, &one).unwrap());
    drop(one);
    assert_eq!(image_files(), 2, "the slot has it");
    drop(pool.take_with(None, &other).unwrap());
    assert_eq!(image_files(), 1, "the slot has the other one");
    drop(other);
    drop(pool);
    assert_eq!(image_files(), 0);
}

fn no_more_open_files() {
    let before = getrlimit(Resource::Nofile);
    let none = rustix::process::Rlimit { current: Some(0), ..before };
    setrlimit(Resource::Nofile, none).unwrap();
    let refused = Image::new(0, b"hello");
    setrlimit(Resource::Nofile, before).unwrap();
    let error = refused.unwrap_err();
    assert!(matches!(error, PoolError::NewImage { bytes: 5, .. }), "{error}");
    assert!(error.to_string().contains("`ulimit -n`"), "{error}");
}

/// What a slot contains: the first byte of each page that is accessible.
fn pages(slot: &Slot<&Pool>) -> Vec<u8> {
    slot.bytes().chunks(PAGE).map(|page| page[0]).collect()
}

/// With so few mappings left that a change of images fails at each of its steps: the slot goes back
/// as its last image, or as none, and serves again once there are mappings.
fn no_more_mappings(limit: u32) {
    let images = [image(0, 1), image(2, 2), image(5, 3)];
    // Each slot of which a part is accessible takes two mappings.
    let crowd = pool(limit / 2);
    let mut taken: Vec<_> = (0..limit / 2).map(|_| crowd.take(None).unwrap()).collect();
    let (pool, key) = (pool(2), ModuleKey::new(1));
    let full = taken.iter_mut().position(|slot| slot.grow(PAGE).is_err());
    let full = full.expect("the limit is reached");
    // What the slots below may take.
    taken[full - 10..full].iter_mut().for_each(|slot| slot.set_accessible(0).unwrap());
    let (mut changes, mut failures) = (0, 0);
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1), (1, 2), (2, 0)] {
        for spare in 0..5 {
            let mut old = pool.take_with(key, &images[from]).unwrap();
            old.bytes_mut().fill(9);
            drop(old);
            pool.reset_all();
            // In use, or it would give its mappings.
            let other = pool.take(None).unwrap();
            // An image takes one mapping.
            let more = std::iter::from_fn(|| Image::new(0, &[0]).ok());
            let mut more: Vec<Image> = more.collect();
            more.truncate(more.len().saturating_sub(spare));
            let changed = pool.take_with(key, &images[to]);
            let what = format!("{from} to {to}, {spare} spare");
            match &changed {
                Ok(slot) => {
                    assert_eq!(pages(slot)[images[to].range().start / PAGE], to as u8 + 1);
                    changes += 1;
                }
                Err(error) => {
                    assert!(matches!(error, PoolError::Image { .. }), "{what}: {error}");
                    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
                    failures += 1;
                }
            }
            drop((changed, other, more));
            // Nothing is lost, and each image comes out right.
            for (number, image) in images.iter().enumerate() {
                let slots =
                    [pool.take_with(key, image).unwrap(), pool.take_with(None, image).unwrap()];
                for mut slot in slots {
                    slot.grow(8 * PAGE).unwrap();
                    let mut expected = [0; 8];
                    expected[image.range().start / PAGE..][..2].fill(number as u8 + 1);
                    assert_eq!(pages(&slot), expected, "{what}, then {number}");
                }
            }
            pool.reset_all();
            drop([pool.take(key).unwrap(), pool.take(None).unwrap()]);
            assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (0, 2), "{what}");
        }
    }
    assert!(changes >= 5 && failures >= 5, "{changes} changes, {failures} failures");
}

/// Slots of a pool, each with a page, until the process may have no more mappings.
fn burst<'p>(pool: &'p Pool, image: Option<&Image>) -> Vec<Slot<&'p Pool>> {
    let take = || match image {
        Some(image) => pool.take_with(None, image).ok(),
        None => {
            let mut slot = pool.take(None).ok()?;
            slot.grow(PAGE).is_ok().then_some(slot)
        }
    };
    let mut taken: Vec<_> = std::iter::from_fn(take).collect();
    taken.iter_mut().for_each(|slot| slot.bytes_mut()[0] = 7);
    taken
}

fn mappings() -> u32 {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count() as u32
}

fn a_burst_gives_mappings_back(limit: u32) {
    let image = image(0, 1);
    for (image, left_max) in [(None, limit / 4), (Some(&image), limit / 2)] {
        let pool = pool(limit);
        let taken = burst(&pool, image);
        assert!(taken.len() as u32 > limit / 8, "the limit is reached");
        drop(taken);
        pool.reset_all();
        assert!(mappings() < left_max + 1000, "{} of {limit}", mappings());
        std::thread::spawn(|| ()).join().unwrap();
        assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (0, limit.into()));
    }
}

fn slots_that_wait_give_mappings_to_calls_that_fail(limit: u32) {
    let builder = Pool::builder().slots(limit).slot_bytes(8 * PAGE).guard_bytes(PAGE).cpus(1);
    let pool = builder.max_accessible_slots(usize::MAX).batch_slots(1).build().unwrap();
    drop(burst(&pool, None));
    assert!(mappings() > limit - 1000, "all stay accessible");
    for byte in 1..7 {
        // An image takes mappings of its own, which there are not.
        let slot = pool.take_with(None, &image(usize::from(byte) % 3, byte)).unwrap();
        assert!(slot.bytes().iter().all(|byte| *byte != 7));
    }
    let mut held: Vec<_> = (0..500).map(|_| pool.take(None).unwrap()).collect();
    held.iter_mut().for_each(|slot| slot.grow(PAGE).unwrap());
    assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (0, u64::from(limit) - 500));
}

/// A pool in use leaves the threads 2000 mappings, of which they want more: calls fail and slots
/// become inaccessible all the time, and each user finds what it should.
fn threads_that_are_short_of_mappings_lose_nothing(limit: u32) {
    let crowd = pool(limit);
    let mut crowd = burst(&crowd, None);
    crowd.truncate(crowd.len() - 1000);
    let builder = Pool::builder().slots(5000).slot_bytes(8 * PAGE).guard_bytes(PAGE).cpus(2);
    let pool = builder.max_accessible_slots(usize::MAX).batch_slots(4).build().unwrap();
    let images = [image(0, 1), image(2, 2), image(5, 3)];
    let failures = AtomicUsize::new(0);
    let work = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut held = Vec::with_capacity(2000);
        for _ in 0..4000 {
            let key = (rng.u64(1..8), rng.usize(0..4));
            let image = images.get(key.1);
            // Modules of one image each.
            let module = ModuleKey::new(key.0 * 4 + key.1 as u64);
            let taken = match image {
                Some(image) => pool.take_with(module, image),
                None => pool.take(module),
            };
            let grown = taken.and_then(|mut slot| slot.grow(rng.usize(1..9) * PAGE).map(|()| slot));
            let Ok(mut slot) = grown else {
                failures.fetch_add(1, Relaxed);
                held.truncate(held.len() / 2);
                continue;
            };
            let (range, byte) = image.map_or((0..0, 0), |it| (it.range(), key.1 as u8 + 1));
            for (nth, found) in pages(&slot).into_iter().enumerate() {
                let expected = if range.contains(&(nth * PAGE)) { byte } else { 0 };
                assert!(found == expected || slot.is_kept() && found == 77, "{slot:?}");
            }
            slot.bytes_mut()[0] = 77;
            match rng.u8(0..8) {
                0 => slot.keep(),
                1 => drop(slot),
                _ => held.push(slot),
            }
        }
    };
    // A thread takes mappings to start, too: none works before all have.
    let started = Barrier::new(3);
    std::thread::scope(|scope| {
        drop([0, 1, 2].map(|seed| {
            scope.spawn({
                let (work, started) = (&work, &started);
                move || {
                    started.wait();
                    work(seed)
                }
            })
        }))
    });
    assert!(failures.load(Relaxed) > 20, "{failures:?} failures");
    pool.reset_all();
    assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (0, 5000));
}
