//! A target for fuzzers: calls of a heap of pages from any bytes, against a map of what is
//! allocated.

use std::collections::BTreeMap;
use std::time::Duration;

use freehold_host::{Arena, Error, FrameCount, Order, Pfn};
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
/// What the heap begins with, and what it may grow to.
const FRAMES: u64 = 2 * PAGEBLOCK;
const FRAMES_MAX: u64 = 5 * PAGEBLOCK;
const FRAME_BYTES: usize = 4096;
const CALLS_MAX: usize = 100;

/// Frames by their first, with the stamp that is in each.
type Spans = BTreeMap<u64, (u64, u8)>;

struct Heap {
    heap: PageHeap,
    spans: Spans,
}

impl Heap {
    fn new() -> Self {
        let builder = Arena::builder().cpus(2).nodes(1).min_free(FrameCount::ZERO);
        let bytes = |frames: u64| frames as usize * FRAME_BYTES;
        let arena = builder.bytes(bytes(FRAMES)).capacity_bytes(bytes(FRAMES_MAX)).build_frames();
        let arena = arena.expect("a few MiB can be had");
        assert_eq!(arena.frame_size().bytes(), FRAME_BYTES);
        Heap {
            heap: PageHeap::new(arena, HeapSettings::default()).expect("handlers can be had"),
            spans: Spans::new(),
        }
    }

    /// The edges of a span are enough: so far, what is wrong has been wrong at an edge.
    fn edges(first: u64, frames: u64) -> [u64; 3] {
        [first, first + frames / 2, first + frames - 1]
    }

    fn check(&self, first: u64) {
        let (frames, stamp) = self.spans[&first];
        for frame in Self::edges(first, frames) {
            assert_eq!(self.heap.arena().load_byte(Pfn::new(frame)), stamp, "frame {frame}");
        }
    }

    fn receive(&mut self, first: u64, frames: u64, is_zeroed: bool, stamp: u8) {
        let below = self.spans.range(..first + frames).next_back();
        assert!(below.is_none_or(|(start, (length, _))| start + length <= first), "{first}");
        assert!(first + frames <= (self.heap.arena().capacity_bytes() / FRAME_BYTES) as u64);
        let edges = Self::edges(first, frames).map(Pfn::new);
        let is_zero = |frame| self.heap.arena().load_byte(frame) == 0;
        assert!(!is_zeroed || edges.into_iter().all(is_zero), "{first} is not zero");
        edges.into_iter().for_each(|frame| self.heap.arena().store_byte(frame, stamp));
        self.spans.insert(first, (frames, stamp));
    }

    /// The span that is the nth.
    fn nth(&self, nth: u8) -> Option<(u64, u64, u8)> {
        let nth = usize::from(nth) % self.spans.len().max(1);
        self.spans.iter().nth(nth).map(|(first, (frames, stamp))| (*first, *frames, *stamp))
    }

    /// Frees frames, which must all be in use, or none of them is freed.
    fn free(&mut self, first: u64, frames: u64) {
        let end = first.saturating_add(frames);
        let inside: Vec<_> = self.spans.range(..end).rev().map(|(at, of)| (*at, *of)).collect();
        let inside = inside.into_iter().take_while(|(at, of)| at + of.0 > first);
        let inside: Vec<_> = inside.collect();
        let used = |(at, of): &(u64, (u64, u8))| (at + of.0).min(end) - (*at).max(first);
        let all_used = frames > 0 && inside.iter().map(used).sum::<u64>() == frames;
        let freed = self.heap.free(Pfn::new(first), FrameCount::new(frames));
        assert_eq!(freed.is_ok(), all_used, "{frames} from {first}: {freed:?}");
        if let Err(error) = freed {
            let expected = [Error::BadRange, Error::ForeignFrame, Error::DoubleFree];
            assert!(expected.contains(&error), "{error:?}");
            return;
        }
        for (at, (length, stamp)) in inside {
            self.spans.remove(&at);
            if at < first {
                self.put_back(at, first - at, stamp);
            }
            if at + length > end {
                self.put_back(end, at + length - end, stamp);
            }
        }
    }

    /// A part of a span that stays, with its stamp at its edges.
    fn put_back(&mut self, first: u64, frames: u64, stamp: u8) {
        for frame in Self::edges(first, frames) {
            self.heap.arena().store_byte(Pfn::new(frame), stamp);
        }
        self.spans.insert(first, (frames, stamp));
    }

    fn call(&mut self, [what, size, which, more]: [u8; 4], stamp: u8) {
        let frames = match size {
            0..150 => u64::from(size % 16),
            150..220 => u64::from(size) * 3,
            _ => PAGEBLOCK / 2 * u64::from(size - 219),
        };
        match what % 16 {
            0..6 => {
                let align = 1 << (more % 12);
                let got = self.heap.alloc(FrameCount::new(frames), FrameCount::new(align));
                match got {
                    Ok(span) => {
                        let first = span.first.get();
                        assert!(first.is_multiple_of(align), "{first}, {align}");
                        self.receive(first, frames, span.is_zeroed, stamp);
                    }
                    Err(Error::BadRange) => assert_eq!(frames, 0),
                    Err(error) => {
                        let full = [Error::OutOfMemory, Error::RangeBusy];
                        assert!(full.contains(&error), "{error:?}");
                    }
                }
            }
            6..10 => {
                if let Some((first, frames, _)) = self.nth(which) {
                    self.check(first);
                    self.free(first, frames);
                }
            }
            // A part of a span, or more than it.
            10 | 11 => {
                if let Some((first, length, _)) = self.nth(which) {
                    self.check(first);
                    self.free(first + u64::from(more) % length, frames);
                }
            }
            12 => self.free(u64::from(which) * 11, frames),
            13 => {
                let first = match self.nth(which) {
                    Some((first, frames, _)) if more & 1 == 0 => first + frames,
                    _ => u64::from(which) * 11,
                };
                let is_free = (frames > 0)
                    .then(|| self.spans.range(..first + frames).next_back())
                    .is_some_and(|below| below.is_none_or(|(at, of)| at + of.0 <= first));
                if let Ok(span) = self.heap.alloc_at(Pfn::new(first), FrameCount::new(frames)) {
                    assert!(is_free && span.first.get() == first, "{frames} from {first}");
                    self.receive(first, frames, span.is_zeroed, stamp);
                }
            }
            14 => {
                let ages = PurgeAges { whole: size % 3, part: (more & 1 == 0).then_some(more % 4) };
                self.heap.purge(ages).expect("the kernel takes it back");
            }
            _ => {
                self.heap.arena().allocator().drain_all();
            }
        }
    }
}

fn run(bytes: &[u8]) {
    let mut heap = Heap::new();
    for (number, call) in bytes.chunks_exact(4).take(CALLS_MAX).enumerate() {
        heap.call([call[0], call[1], call[2], call[3]], 1 + number as u8 % 255);
    }
    let allocator = heap.heap.arena().allocator();
    let census = allocator.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.allocated.get(), heap.spans.values().map(|of| of.0).sum::<u64>());
    while let Some((&first, &(frames, _))) = heap.spans.first_key_value() {
        heap.check(first);
        heap.free(first, frames);
    }
    let all = heap.heap.arena().total_frames();
    let span = heap.heap.alloc_at(Pfn::new(0), all);
    assert!(span.is_ok(), "all of it can be had again: {span:?}");
}

#[test]
fn any_calls_of_a_page_heap_keep_spans_apart() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(run);
}
