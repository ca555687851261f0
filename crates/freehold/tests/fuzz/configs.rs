//! Configurations: none makes a panic, and an allocator works on all that are accepted.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::common::{TestPlatform, run_on};
use crate::machine::Machine;
use crate::parts::{Parts, is_small, number};
use freehold::designs::{Design, Freehold, Settings};
use freehold::{Config, FrameCount, MigrateType, Order, PageAllocator, Request, Watermark};
use freehold_linux::ZoneLock;

/// All memory can be had, in the end frame by frame, and comes back.
fn works<D: Design<TestPlatform>>(config: &Config<'_>, parts: &Parts, settings: &D::Settings) {
    let layout = PageAllocator::<TestPlatform, D>::layout(config, settings);
    if !is_small(layout, parts) {
        return;
    }
    run_on(0);
    // What a layout was made for may still be refused, where memory is looked at.
    let machine = Machine::<TestPlatform, D>::try_new(TestPlatform, config, settings);
    let machine = machine.expect("what can be laid out can be built");
    let managed = machine.validate().expect("a new allocator is in order").managed;
    assert_eq!(managed.get(), parts.frames());
    let mut held = Vec::new();
    for migratetype in [MigrateType::Movable, MigrateType::Unmovable] {
        for order in [9, 3, 0].map(Order::new) {
            let request = Request::new(order).migratetype(migratetype);
            let request = request.watermark(Watermark::Ignore);
            while let Ok(pfn) = machine.alloc(request) {
                held.push((pfn, order));
            }
        }
    }
    let sum: FrameCount = held.iter().map(|(_, order)| order.frames()).sum();
    assert_eq!(sum, managed, "all memory can be had");
    machine.validate().expect("the books are right");
    for (pfn, order) in held {
        machine.free(pfn, order).expect("it is held");
    }
    machine.drain_all();
    assert_eq!(machine.validate().expect("the books are right").free, managed);
}

fn check<D: Design<TestPlatform>>(bytes: &[u8]) {
    let bytes = &mut Bytes(bytes);
    let mut settings = D::Settings::default();
    for setting in D::Settings::TABLE {
        let values: Vec<_> = setting.values.split('|').collect();
        let value = match bytes.byte() {
            0..128 => continue,
            128..192 => bytes.one_of(&values).to_owned(),
            _ => number(bytes).to_string(),
        };
        // Values are refused, or do no harm.
        let _ = settings.set(setting.name, &value);
    }
    let parts = Parts::new(bytes);
    let config = parts.config(bytes);
    works::<D>(&config, &parts, &settings);
}

#[test]
fn zone_lock() {
    bolero::check!()
        .with_test_time(Duration::from_millis(300))
        .for_each(|bytes: &[u8]| check::<ZoneLock<TestPlatform>>(bytes));
}

#[test]
fn freehold() {
    bolero::check!()
        .with_test_time(Duration::from_millis(300))
        .for_each(|bytes: &[u8]| check::<Freehold<TestPlatform>>(bytes));
}
