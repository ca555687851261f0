//! Images at the limits of the process: mappings, and open files. A program of its own, since other
//! tests would not run at these limits.

use std::fs;

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
fn images_at_the_limits() {
    files_that_images_have_open_are_closed();
    no_more_open_files();
    no_more_mappings();
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
fn no_more_mappings() {
    let limit: u32 =
        fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if limit > 1 << 20 {
        eprintln!("SKIPPED: vm.max_map_count is {limit}, more than a test should reach");
        return;
    }
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
            drop(changed);
            drop(more);
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
