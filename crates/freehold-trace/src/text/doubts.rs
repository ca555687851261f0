//! What was lost, what cannot be, and what old kernels print.

use super::*;
use crate::event::{Kind, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

fn flags(text: &str) -> Gfp {
    Gfp::parse(text, &GfpLayout::default()).unwrap()
}

fn alloc(pfn: Option<u64>, order: u8, migratetype: MigrateType, gfp: &str) -> What {
    What::Alloc { pfn, order, gfp: flags(gfp), migratetype }
}

fn whats(imported: &Imported) -> Vec<What> {
    imported.events.iter().map(|event| event.what).collect()
}

/// A line of perf.
fn perf(us: u32, event: &str) -> String {
    format!("a 1 [000] 1.{us:06}: {event}\n")
}

const ALLOC: &str =
    "kmem:mm_page_alloc: page=0x8 pfn=0x8 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE";
const FREE: &str = "kmem:mm_page_free: page=0x8 pfn=0x8 order=0";

#[test]
fn what_perf_lost_counts_on_its_cpu_at_its_time() {
    let imported = import(&include_bytes!("samples/perf_lost.txt")[..]).unwrap();
    let lost = imported.events.iter().filter(|event| event.what.kind() == Kind::Lost);
    let lost: Vec<_> = lost.map(|event| (event.time_ns, event.cpu, event.what)).collect();
    let wanted = |time_ns, cpu, events| (time_ns, cpu, What::Lost { events });
    assert_eq!(lost, [wanted(9000, 1, 8), wanted(74_000, 0, 19)]);
    assert_eq!((imported.events.len(), imported.others, imported.doubts), (6, 0, vec![]));
    for (line, events, time_ns) in [
        ("a.out  6429/6429 [001]     1.000010: PERF_RECORD_LOST lost 812", 812, 9000),
        ("swapper  -1/-1 [001]     0.000000: PERF_RECORD_LOST lost 7", 7, 0),
        ("a 1 [001] 1.000010: PERF_RECORD_LOST_SAMPLES lost 5", 5, 9000),
        ("1 1000010000 0xb0c8 [0x38]: PERF_RECORD_LOST: id:62: lost:8", 8, 9000),
        ("1 1000010000 0xb0c8 [0x38]: PERF_RECORD_LOST_SAMPLES: id:2: lost samples :9", 9, 9000),
        (
            "1 1 0x8 [0x38]: PERF_RECORD_LOST    a 1 [001] 1.000010: PERF_RECORD_LOST lost 4",
            4,
            9000,
        ),
        ("CPU:1 [LOST 12 EVENTS]", 12, 0),
        ("te.dat: CPU:1 [12 EVENTS DROPPED]", 12, 0),
        ("CPU:1 [EVENTS DROPPED]", 0, 0),
    ] {
        let text = perf(1, ALLOC) + line + "\n" + &perf(20, FREE);
        let imported = import(text.as_bytes()).unwrap();
        let lost = imported.events[1];
        assert_eq!((lost.cpu, lost.what), (1, What::Lost { events }), "{line}");
        assert_eq!((lost.time_ns, imported.events.len()), (time_ns, 3), "{line}");
    }
}

#[test]
fn texts_of_perf_without_losses_say_that_it_prints_them_by_option() {
    let imported = import((perf(1, ALLOC) + &perf(2, FREE)).as_bytes()).unwrap();
    assert_eq!(imported.doubts, [Doubt::PerfLosses]);
    assert!(Doubt::PerfLosses.to_string().contains("--show-lost-events"));
}

#[test]
fn a_refused_allocation_is_one_whatever_is_printed() {
    for fields in [
        "[FAILED TO PARSE] pfn=0xffffffffffffffff order=9 gfp_flags=GFP_KERNEL migratetype=0",
        "pfn=0xffffffff order=0 gfp_flags=GFP_KERNEL migratetype=0",
        "pfn=-1 order=0 gfp_flags=GFP_KERNEL migratetype=0",
        "pfn=0xffffffffffffffff (18446744073709551615) order=0x0 (0) gfp_flags=GFP_KERNEL \
         migratetype=0x0 (0)",
        "page=0xffffffffffffffff pfn=18446744073709551615 order=0 migratetype=0 \
         gfp_flags=GFP_KERNEL",
        "page=          (null) pfn=377957122048 order=3 migratetype=0 gfp_flags=GFP_KERNEL",
        "page=0000000000000000 pfn=0x0 order=0 migratetype=0 gfp_flags=GFP_KERNEL",
    ] {
        let imported = import(perf(1, &format!("kmem:mm_page_alloc: {fields}")).as_bytes());
        let what = imported.unwrap().events[0].what;
        assert!(matches!(what, What::Alloc { pfn: None, .. }), "{fields}: {what:?}");
    }
}

#[test]
fn old_kernels_are_read_in_todays_terms() {
    let imported = import(&include_bytes!("samples/old_kernel.txt")[..]).unwrap();
    let temporary = "GFP_KERNEL|__GFP_RECLAIMABLE|__GFP_NOWARN|__GFP_RETRY_MAYFAIL";
    let wanted = [
        alloc(Some(1_155_800), 0, MigrateType::RECLAIMABLE, temporary),
        What::Free { pfn: 1_155_800, order: 0 },
        alloc(Some(1_155_801), 0, MigrateType::MOVABLE, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO"),
        // Before 2.6.37, this is the only event of such a free.
        What::Free { pfn: 1_155_801, order: 0 },
        What::FreeBatched { pfn: 1_155_801 },
        alloc(None, 3, MigrateType::UNMOVABLE, "__GFP_RECLAIM|__GFP_COLD"),
        What::Free { pfn: 1_155_802, order: 0 },
        What::FreeBatched { pfn: 1_155_802 },
    ];
    assert_eq!(whats(&imported), wanted);
    assert_eq!(imported.doubts, [Doubt::Before44]);
}

#[test]
fn a_free_of_an_old_kernel_is_not_that_of_the_next_allocation() {
    let text = perf(1, "kmem:mm_pagevec_free: pfn=0x8 order=0 cold=0")
        + &perf(2, ALLOC)
        + &perf(3, "kmem:mm_page_free_direct: pfn=0x8 order=0");
    let free = What::Free { pfn: 8, order: 0 };
    let alloc = alloc(Some(8), 0, MigrateType::MOVABLE, "GFP_HIGHUSER_MOVABLE");
    let imported = import(text.as_bytes()).unwrap();
    assert_eq!(whats(&imported), [free, What::FreeBatched { pfn: 8 }, alloc, free]);
}

#[test]
fn migratetypes_are_numbered_as_flags_and_names_say() {
    let movable = "pfn=0x8 order=0 migratetype=M gfp_flags=0x200da";
    let drain = "kmem:mm_page_pcpu_drain: pfn=0x8 order=0 migratetype=2";
    let type_of_drain = |texts: &[String]| {
        let imported = import(texts.concat().as_bytes()).unwrap();
        let drained = imported.events.iter().find_map(|event| match event.what {
            What::PcpuDrain { migratetype, .. } => Some(migratetype),
            _ => None,
        });
        (drained.unwrap(), imported)
    };
    let alloc =
        |number: &str| perf(1, &format!("kmem:mm_page_alloc: {}", movable.replace('M', number)));
    let (drained, imported) = type_of_drain(&[alloc("2"), perf(2, drain)]);
    assert_eq!(drained, MigrateType::MOVABLE);
    // Numbers of flags are those of old kernels then.
    let gfp = flags("GFP_HIGHUSER_MOVABLE");
    assert!(matches!(imported.events[0].what, What::Alloc { gfp: read, .. } if read == gfp));
    let (drained, imported) = type_of_drain(&[alloc("1"), perf(2, drain)]);
    assert_eq!(drained, MigrateType::RECLAIMABLE);
    assert!(imported.doubts.contains(&Doubt::GfpNumbers { allocations: 1 }));
    // Nothing but names speaks.
    let old = perf(1, "kmem:mm_page_free_direct: pfn=0x8 order=0");
    assert_eq!(type_of_drain(&[old, perf(2, drain)]).0, MigrateType::MOVABLE);
    let old = "kmem:mm_page_alloc: pfn=0x8 order=0 migratetype=0 gfp_flags=GFP_KERNEL|GFP_ZERO";
    assert_eq!(type_of_drain(&[perf(1, old), perf(2, drain)]).0, MigrateType::MOVABLE);
    // 4.4 and 4.5 have old names and the numbers of today.
    let mixed = [perf(0, old), alloc("1"), alloc("1"), alloc("2"), perf(2, drain)];
    let (drained, imported) = type_of_drain(&mixed);
    assert_eq!(drained, MigrateType::RECLAIMABLE);
    assert!(imported.doubts.contains(&Doubt::Migratetypes { allocations: 1, of: 3 }));
}

#[test]
fn what_cannot_be_is_said() {
    let doubts = |text: &str| {
        let mut doubts = import(text.as_bytes()).unwrap().doubts;
        doubts.retain(|doubt| !doubt.is_note());
        doubts
    };
    assert_eq!(doubts(&perf(1, ALLOC)), [Doubt::NoFrees { allocations: 1 }]);
    assert_eq!(doubts(&perf(1, FREE)), [Doubt::NoAllocations { frees: 1 }]);
    let pair = perf(1, ALLOC) + &perf(2, FREE);
    assert_eq!(doubts(&pair), []);
    let twice = (0..12).map(|us| perf(us, if us % 3 < 2 { ALLOC } else { FREE }));
    assert_eq!(doubts(&twice.collect::<String>()), [Doubt::Order { repeated: 4, of: 11 }]);
    let back = doubts(&pair.repeat(2));
    assert_eq!(back, [Doubt::TimesGoBack { line: 3, lines: 1 }]);
    let other_cpu = pair.replace("[000]", "[001]");
    assert_eq!(doubts(&(pair.clone() + &other_cpu)), [], "as perf's --per-event-dump has it");
    for heading in ["# tracer: nop\n", "cpus=2\n", "te.dat: cpus=2\n"] {
        let text = format!("{heading}{pair}{heading}{}", pair.replace(" 1.", " 2."));
        assert_eq!(doubts(&text), [Doubt::Several { headings: 2 }]);
    }
    for heading in [
        "# entries-in-buffer/entries-written: 380/103745   #P:2\n",
        "# latency: 0 us, #380/103745, CPU#0 | (M:PREEMPT(none) VP:0, KP:0, SP:0 HP:0 #P:2)\n",
    ] {
        let overwritten = Doubt::Overwritten { kept: 380, of: 103_745 };
        assert_eq!(doubts(&(heading.to_owned() + &pair)), [overwritten]);
        assert_eq!(doubts(&(heading.replace("103745", "380") + &pair)), []);
    }
}

#[test]
fn differences_between_times_are_refused() {
    let text: String = (0..20).map(|at| perf([0, 28, 103, 51][at % 4], ALLOC)).collect();
    let error = import(text.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line 4: the times go back in 9 of 20 lines"), "{error}");
    assert!(error.contains("--deltatime"), "{error}");
}

#[test]
fn bad_lines_are_left_out_and_counted_if_asked_for() {
    let good = perf(1, ALLOC) + &perf(2, FREE);
    let broken = perf(3, ALLOC).replace(" gfp", "\n gfp");
    let text = good.clone() + &broken + &perf(4, "kmem:mm_page_free: pfn=x order=0");
    let read = import_with(text.as_bytes(), BadLines::LeaveOut).unwrap();
    assert_eq!((read.events.len(), read.bad_lines), (2, 2));
    assert_eq!(read.first_bad, Some((3, "it has no gfp_flags=".to_owned())));
    assert!(matches!(import(text.as_bytes()), Err(TextError::BadLine { line: 3, .. })));
    let nothing = import_with(broken.as_bytes(), BadLines::LeaveOut);
    assert!(matches!(nothing, Err(TextError::BadLine { line: 1, .. })));
}

#[test]
fn what_looks_whole_and_goes_on_is_bad() {
    let refill = "kmem:mm_page_alloc_zone_locked: pfn=0x8 order=0 migratetype=1";
    for (event, rest) in [
        (refill, "percpu_refill=0"),
        ("kmem:mm_page_free: pfn=0x10 order=1", "0"),
        ("kmem:mm_page_alloc: pfn=8 order=0 migratetype=1 gfp_flags=GFP_KERNEL|__GFP_ZE", "RO"),
    ] {
        let text = perf(1, ALLOC) + &perf(2, event) + rest + "\n" + &perf(3, FREE);
        let error = import(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2: it goes on in the next line"), "{error}");
        let read = import_with(text.as_bytes(), BadLines::LeaveOut).unwrap();
        assert_eq!((read.events.len(), read.bad_lines), (2, 1), "{event}");
    }
    // What perf and ftrace print between events.
    for between in
        ["\tffffffff815c7ad1", "  400123", " => do_wp_page", "PERF_RECORD_FINISHED_ROUND"]
    {
        let text = perf(1, ALLOC) + between + "\n" + &perf(3, FREE);
        assert_eq!(import(text.as_bytes()).unwrap().events.len(), 2, "{between}");
    }
}

#[test]
fn the_last_line_needs_no_end() {
    let text = perf(1, ALLOC) + perf(2, FREE).trim_end();
    assert_eq!(import(text.as_bytes()).unwrap().events.len(), 2);
}
