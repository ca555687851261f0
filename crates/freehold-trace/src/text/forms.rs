//! Every form in which the tools print a line, by their options.

use super::*;
use crate::event::{Context, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

/// What is behind the name of the event in all of them.
const FIELDS: &str =
    "page=0000000082b1fe73 pfn=0x1238 order=3 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE";

/// A form with these fields.
fn line(form: &str) -> String {
    form.replace("{alloc}", &format!("mm_page_alloc: {FIELDS}"))
}

/// The header of the only event of a form.
fn header(form: &str) -> (u32, u32, Context) {
    let text = line(form);
    let imported = import(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [event] = imported.events[..] else { panic!("{text}: {:?}", imported.events) };
    let gfp = Gfp::parse("GFP_HIGHUSER_MOVABLE", &GfpLayout::default()).unwrap();
    let migratetype = MigrateType::MOVABLE;
    assert_eq!(event.what, What::Alloc { pfn: Some(0x1238), order: 3, gfp, migratetype }, "{text}");
    (event.cpu, event.pid, event.context)
}

#[test]
fn every_form_with_a_time_and_a_cpu_is_read() {
    use Context::{HardIrq, SoftIrq, Task};
    for (form, cpu, pid, context) in [
        // ftrace: plain, noirq-info, record-tgid, both; a name that is not known.
        ("            bash-25778   [001] d.h1.   453.784475: {alloc}", 1, 25778, HardIrq),
        ("            bash-25778   [001]    452.421087: {alloc}", 1, 25778, Task),
        ("  bash-25778   (  25770) [001] ..s..   452.469185: {alloc}", 1, 25778, SoftIrq),
        ("   rustc-25811   (  25806) [000]    453.325131: {alloc}", 0, 25811, Task),
        ("           <...>-22275 (-----) [006] d..3   889.213383: {alloc}", 6, 22275, Task),
        // ftrace with latency-format; with trace_clock=tai; in a kernel's log.
        ("    bash-25778     0..... 20287us : {alloc}", 0, 25778, Task),
        ("   rustc-25663     1d.h1. 20293us+: {alloc}", 1, 25663, HardIrq),
        ("   rustc-25791   112..s.. 16290us!: {alloc}", 112, 25791, SoftIrq),
        (" bash-25778   [001] ..... 1795765185.000476: {alloc}", 1, 25778, Task),
        ("[   12.345678]    bash-7     0d.s.. 20287us : {alloc}", 0, 7, SoftIrq),
        // trace-cmd report: -t, -l, -R, --ts-diff, --debug, several files.
        ("  bash-8938  [000] d..1.  871.033936805: {alloc}", 0, 8938, Task),
        ("    bash-8938    0d.H..   871.033937: {alloc}", 0, 8938, HardIrq),
        ("  bash-8938  [000]-0x1   871.033937: {alloc}", 0, 8938, Task),
        ("    dd-8944  [001]   871.034091: (+107)   {alloc}", 1, 8944, Task),
        ("    dd-8944  [001]   871.034091: {alloc} [0:0x10:24]", 1, 8944, Task),
        ("te.dat:     dd-8944  [001]   871.034091: {alloc}", 1, 8944, Task),
        // perf script: plain, both numbers, --ns and a period, no name, the mode, time of day,
        // symbols behind the event, a modifier of the event.
        ("       perf 30269 [001]   487.434979:        kmem:{alloc}", 1, 30269, Task),
        ("     migration/0    18/19    [000]   487.434847: kmem:{alloc}", 0, 19, Task),
        ("  perf 30269 [001]   487.434979074:          1        kmem:{alloc}", 1, 30269, Task),
        ("30269 [001]   487.434979:        kmem:{alloc}", 1, 30269, Task),
        ("  perf 30269 [001] KHh       487.434979:  kmem:{alloc}", 1, 30269, Task),
        ("  perf 9 [001] 2026-11-27 07:40:17.123456   487.434979:  kmem:{alloc}", 1, 9, Task),
        ("  perf 9 [001]   487.434979: kmem:{alloc} ffffffff815c7ad1 __traceiter", 1, 9, Task),
        ("      :-1    -1/-1    [001]   487.434979: kmem:{alloc}", 1, 0, Task),
        // function_graph with funcgraph-abstime; and funcgraph-proc; and latency-format.
        (" 1287587.105144 |   1)               |  /* {alloc} */", 1, 0, Task),
        (
            " 1287587.105144 |   1)   bash-1234   |               |      /* {alloc} */",
            1,
            1234,
            Task,
        ),
        (
            " 1287587.105144 |   1)   ks-9   |  d.s1. |               |  /* {alloc} */",
            1,
            9,
            SoftIrq,
        ),
    ] {
        assert_eq!(header(form), (cpu, pid, context), "{form}");
        assert_eq!(header(&form.replace("   ", "\t")), (cpu, pid, context), "tabs: {form}");
        assert_eq!(header(&format!("{form}\r\n\r\n")), (cpu, pid, context), "CRLF: {form}");
        assert_eq!(header(&format!("> {form}")), (cpu, pid, context), "quoted: {form}");
    }
    let named = "  perf 9 [001]   487.434979:  kmem:mm_page_free:k: page=0x8 pfn=0x8 order=3";
    let imported = import(named.as_bytes()).unwrap();
    assert_eq!(imported.events[0].what, What::Free { pfn: 8, order: 3 });
}

#[test]
fn the_latency_format_has_times_since_the_start_of_the_buffer() {
    let imported = import(&include_bytes!("samples/latency.txt")[..]).unwrap();
    let events: Vec<_> = imported.events.iter().map(|event| (event.time_ns, event.pid)).collect();
    assert_eq!(events, [(0, 25778), (6000, 25663), (26_000, 25778), (27_000, 25778)]);
    assert_eq!(imported.doubts, [Doubt::NoFrees { allocations: 4 }]);
}

#[test]
fn processes_may_have_any_name() {
    for name in [
        "my prog",
        "a: b",
        "x [1]",
        "[001]",
        "a-b-c",
        "->",
        "mm_page_free:",
        "größe ✓",
        "(sd-pam)",
        "1 [0] 1.000000:",
        "[0] 1.000000: a",
        "0.... 1us+: a:",
        "1.000001: a:",
        "#1",
        "a|b",
        "7",
        "CPU:1 [LOST]",
        "/* x",
        "\u{fffd}\u{1}",
    ] {
        let ftrace = format!("{name:>16}-1234    [001] ..s..   100.000003: {{alloc}}");
        assert_eq!(header(&ftrace), (1, 1234, Context::SoftIrq), "{name}");
        let latency = format!("{name:>8.8}-1234      1..s.. 20287us : {{alloc}}");
        assert_eq!(header(&latency), (1, 1234, Context::SoftIrq), "{name}");
        for width in [0, 16] {
            let perf = format!("{name:>width$}  1234 [001]   100.000003: kmem:{{alloc}}");
            assert_eq!(header(&perf), (1, 1234, Context::Task), "{name}");
        }
    }
}

#[test]
fn no_name_of_a_process_passes_for_a_header() {
    const PARTS: [&str; 18] = [
        "[0]",
        "1.000000:",
        "1us+:",
        "1us",
        ":",
        "0....",
        "1",
        "-1",
        "1/1",
        " ",
        " ",
        " ",
        "(1)",
        "a:",
        "kmem:",
        "/*",
        "CPU:1",
        "#",
    ];
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let parts: String = (0..rng.usize(1..9)).map(|_| PARTS[rng.usize(..PARTS.len())]).collect();
        let name: String = parts.chars().take(15).collect();
        assert_eq!(
            header(&format!("{name:>16}-5    [001] ..... 7.000003: {{alloc}}")).1,
            5,
            "{name}"
        );
        assert_eq!(header(&format!("{name:>16}-5      1..... 20287us : {{alloc}}")).1, 5, "{name}");
        assert_eq!(
            header(&format!("{name:>16}     5 [001] 7.000003: kmem:{{alloc}}")).1,
            5,
            "{name}"
        );
    }
}

#[test]
fn the_rest_of_a_line_is_not_searched() {
    let alloc = line(" bash-1 [001] ..... 1.000001: {alloc}\n");
    for other in [
        "bash-1235 [001] .....   100.000002: bpf_trace_printk: mm_page_alloc: order=3 seen",
        "bash-1235 [001] .....   100.000003: tracing_mark_write: B|1235|mm_page_alloc:slow",
        "bash-1235 [001] .....   100.000003: tracing_mark_write: a-1 [000] ..... 1.000000: \
         mm_page_free: page=0x8 pfn=0x8 order=3",
        "bash-8938 [000]   871.035956: print:   tracing_mark_write: mm_page_alloc: mine",
        "bash-8938 [000] ..... 871.035956: : mm_page_alloc: mine",
        "bash-8938 [000] ..... 871.035956: mm_page_alloc_extfrag: page=0x1 pfn=0x1 order=0",
        "bash-8938 [000] ..... 454.133157: free_unref_page <-mm_page_alloc: x",
        "bash 8938 [000] 871.035956: probe:mm_page_alloc: (ffffffff81) pfn=0x1",
        "bash 8938 [000] 871.035956: ftrace:print: mm_page_alloc: mine",
        "bash 8938 [000] 871.035956: ftrace:print: kmem:mm_page_alloc: mine",
        "bash-8938 [000] ..... 871.035956: my text: mm_page_alloc: mine",
        "rustc-25791 [001] .....   452.832623: <stack trace>",
        " 1.000001 |   1)   0.130 us    |  ___might_sleep(); /* mm_page_alloc */",
        " 1)               |  /* mine: mm_page_alloc: x */",
        "tracing_mark_write: mm_page_alloc: mine",
    ] {
        let imported = import(format!("{other}\n{alloc}").as_bytes());
        let imported = imported.unwrap_or_else(|error| panic!("{other}: {error}"));
        assert_eq!(imported.events.len(), 1, "{other}");
    }
    let commented = alloc.replace(" bash", "# bash") + &alloc.replace(" bash", "#bash");
    assert!(matches!(import(commented.as_bytes()), Err(TextError::NoEvents { .. })));
}

#[test]
fn forms_that_lack_something_name_the_option_that_helps() {
    for (form, problem) in [
        ("{alloc}", "echo context-info > trace_options"),
        (
            "    bash 25778   1 0 00000000 00000002 [1b036c9e] 16.363ms (+0.001ms): {alloc}",
            "verbose",
        ),
        ("bash-25778   [001] .....            3: {alloc}", "trace_clock"),
        ("bash-25778     1.....    1: {alloc}", "trace_clock"),
        ("bash-25778   [000] ..... 1178662556279: {alloc}", "trace_clock"),
        ("bash-8938  [000]871033936805: {alloc}", "`--raw-ts`"),
        ("bash-8938  [000] -1.000000: {alloc}", "`-1.000000:` is no time"),
        ("bash-8938  [000] 99999999999.000000: {alloc}", "`99999999999.000000:` is no time"),
        ("bash-8938  [65535] 9.000000: {alloc}", "no CPU"),
        ("25811 0 452617196250 type: 653", "noraw"),
        ("000064b2 00000000 0000006964780505 type: 653", "nohex"),
        ("\u{5}\0\0\0d\0", "nobin"),
        (" 24)               |  /* {alloc} */", "funcgraph-abstime"),
        (" 24)   bash-1   |               |  /* {alloc} */", "funcgraph-abstime"),
        (" 1287587.105144 |               |  /* {alloc} */", "funcgraph-cpu"),
        ("      105 us |   1)               |  /* {alloc} */", "funcgraph-abstime"),
        ("               |  /* {alloc} */", "funcgraph-abstime"),
        (" 1)  /* {alloc} */", "funcgraph-abstime"),
        ("[001] ..... 1.000001: {alloc}", "no process"),
        ("    perf 30269   1   487.434979:        kmem:{alloc}", "without `-L`"),
        ("            perf 30269   487.434979:        kmem:{alloc}", "`-F +cpu`"),
        ("            perf [001]   487.434979:        kmem:{alloc}", "`-F +tid`"),
        ("     migration/0 [001]   487.434979:        kmem:{alloc}", "`-F +tid`"),
        ("            x-12 [001]   487.434979:        kmem:{alloc}", "`-F +tid`"),
        ("            perf 30269 [001]        kmem:{alloc}", "`-F +time`"),
        ("perf 30269 [001]   487.434979: page=0x8 pfn=0x8 order=0 migratetype=0", "`-F +event`"),
        ("perf 30269 [001]   487.434979:        kmem:mm_page_alloc: ", "`-F +trace`"),
        ("perf 30269 [001]   487.434979: ab 7  kmem:{alloc}", "`ab` stands between the time"),
        ("PERF_RECORD_LOST lost 12", "`-F +cpu,+time`"),
    ] {
        let text = format!("{}\n", line(form));
        let error = import(text.as_bytes()).expect_err(&text).to_string();
        assert!(error.starts_with("line 1: ") && error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn files_that_are_no_text_are_named() {
    for (bytes, what, command) in [
        (&b"PERFILE2\x68\0"[..], "perf's own file", "perf script --show-lost-events"),
        (b"\x17\x08\x44tracing7\0", "trace-cmd's own file", "trace-cmd report"),
        (b"\x1f\x8b\x08\0", "gzip", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd\x24", "zstd", "zstd -dc"),
        (b"\xfd7zXZ\0\0", "xz", "xz -dc"),
        (b"BZh91AY", "bzip2", "bzip2 -dc"),
        (b"\xff\xfeb\0a\0", "UTF-16", "iconv"),
        (b"\x89FHT\r\n\x1a\n\x01", "a recording already", "freehold trace info"),
    ] {
        let error = import(bytes).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(command), "{error}");
    }
}

#[test]
fn a_text_of_another_form_says_where_it_names_an_event() {
    let text = "\n 0.000 dd/30309 kmem:mm_page_alloc(pfn: 1313738, gfp_flags: 4459968)\n";
    let error = import(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("in 2 lines, though line 2 names one: this reads"), "{error}");
}
