use super::*;
use crate::event::{Context, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

fn flags(text: &str) -> Gfp {
    Gfp::parse(text, &GfpLayout::default()).unwrap()
}

fn alloc(pfn: Option<u64>, order: u8, gfp: &str) -> What {
    What::Alloc { pfn, order, gfp: flags(gfp), migratetype: MigrateType::MOVABLE }
}

/// The same events as three tools print them, between other lines.
const FTRACE: &str = include_str!("samples/ftrace.txt");

const TRACE_CMD: &str = include_str!("samples/trace_cmd.txt");

const PERF: &str = include_str!("samples/perf.txt");

fn expected(context: bool, lost: bool, refill: bool) -> Vec<Event> {
    let event = |time_ns, cpu, pid, context, what| Event { time_ns, cpu, pid, context, what };
    let of = |given| if context { given } else { Context::Task };
    let migratetype = MigrateType::UNMOVABLE;
    let mut events = vec![
        event(
            0,
            0,
            0,
            of(Context::HardIrq),
            alloc(Some(0x1234), 0, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO"),
        ),
        event(2000, 1, 1234, of(Context::SoftIrq), What::Free { pfn: 0x1238, order: 3 }),
        event(2000, 1, 0, Context::Task, What::Lost { events: 12 }),
        event(4000, 1, 1235, Context::Task, What::FreeBatched { pfn: 0x1235 }),
        event(5000, 1, 1235, Context::Task, alloc(None, 9, "GFP_TRANSHUGE")),
        event(
            6000,
            1,
            1235,
            Context::Task,
            What::ZoneLocked { pfn: 0x40, order: 2, migratetype, refill },
        ),
    ];
    if !lost {
        events.remove(2);
    }
    events
}

#[test]
fn three_tools_print_the_same_events() {
    for (text, wanted, doubts) in [
        (FTRACE, expected(true, true, false), vec![]),
        (TRACE_CMD, expected(true, true, false), vec![]),
        (
            PERF,
            expected(false, false, true),
            vec![Doubt::GfpNumbers { allocations: 1 }, Doubt::PerfLosses],
        ),
    ] {
        let imported = import(text.as_bytes()).unwrap();
        assert_eq!((imported.events, imported.doubts), (wanted, doubts), "{text}");
        assert_eq!(imported.others, 1, "{text}");
    }
}

#[test]
fn lines_may_come_in_any_order() {
    let mut lines: Vec<_> = FTRACE.lines().filter(|line| !line.contains("LOST")).collect();
    lines.reverse();
    let imported = import(lines.join("\n").as_bytes()).unwrap();
    assert_eq!(imported.events, expected(true, false, false));
}

#[test]
fn a_bad_line_is_named() {
    let line = |fields: &str| format!("#\nbash-1 [000] ..... 1.000001: mm_page_alloc: {fields}\n");
    let good = "page=0x1 pfn=0x1 order=0 migratetype=1 gfp_flags=GFP_KERNEL";
    import(line(good).as_bytes()).unwrap();
    for (from, to, problem) in [
        ("pfn=0x1", "pfn=0xyz", "line 2: pfn=0xyz is no number"),
        (
            "pfn=0x1",
            "pfn=0x10000000000000",
            "line 2: pfn=0x10000000000000: no machine has this frame",
        ),
        (" order=0", "", "line 2: it has no order="),
        ("order=0", "order=300", "line 2: order=300 is too large"),
        ("order=0", "order=17", "line 2: no block of this order begins at this frame"),
        ("order=0", "order=1", "line 2: no block of this order begins at this frame"),
        ("GFP_KERNEL", "kernel", "line 2: gfp_flags: `kernel` is no flag"),
    ] {
        let error = import(line(&good.replace(from, to)).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), problem);
    }
    for (from, to, problem) in [
        ("1.000001:", "soon:", "line 2: `soon:` is no time"),
        (
            "[000] ....",
            "....",
            "line 2: no CPU, such as [001], stands before the time: perf prints it with `-F +cpu` \
             and without `-L`",
        ),
        ("bash-1", "bash", "line 2: `bash` does not end in a process"),
    ] {
        let error = import(line(good).replace(from, to).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), problem);
    }
}

#[test]
fn any_white_space_divides_words() {
    let text = "bash-1\u{a0}[000]\u{2003}.....\u{85}1.000001: mm_page_free: pfn=0x8 order=3\n";
    let imported = import(text.as_bytes()).unwrap();
    assert_eq!(imported.events[0].what, What::Free { pfn: 8, order: 3 });
}

#[test]
fn a_text_without_page_events_is_refused() {
    for text in ["", "cpus=2\n", "a b\n\nc", "bash 1 [000] 1.000000: sched:sched_switch: x=y\n"] {
        let error = import(text.as_bytes()).unwrap_err();
        assert!(matches!(error, TextError::NoEvents { .. }), "{text}: {error}");
    }
}
