//! Configurations: none makes a panic, and what is accepted can be built.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::common::{TestPlatform, run_on};
use crate::parts::{Parts, is_small, number};
use crate::room::Room;
use crate::shelf::Shelf;
use freehold::FrameCount;
use freehold_lru::{Lru, LruSettings};

#[test]
fn any_configuration() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(|bytes: &[u8]| {
        let bytes = &mut Bytes(bytes);
        let parts = Parts::new(bytes);
        let config = parts.config(bytes);
        let (batch, groups) = (number(bytes) as u32, number(bytes) as u32);
        let settings = LruSettings::default().batch(batch).groups(groups);
        let layout = Lru::<TestPlatform, Shelf>::layout(&config, &settings);
        if is_small(layout, &parts) {
            run_on(0);
            let room = Room::new(TestPlatform, &config, &settings, Shelf::default());
            let census = room.check();
            assert_eq!(census.used, FrameCount::ZERO);
        }
    });
}
