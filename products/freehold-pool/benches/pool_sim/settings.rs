//! What can be set, and where defaults come from.

/// A number that can be set.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    pub(crate) meaning: &'static str,
}

macro_rules! settings {
    ($($name:ident = $default:literal, $meaning:literal;)*) => {
        /// The settings of a run.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Settings {
            $(pub(crate) $name: u64),*
        }

        impl Settings {
            pub(crate) const TABLE: &[Setting] = &[
                $(Setting { name: stringify!($name), default: $default, meaning: $meaning }),*
            ];

            pub(crate) fn new() -> Self {
                Settings { $($name: $default),* }
            }

            /// Sets one by its name; returns whether there is such a setting.
            pub(crate) fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

settings! {
    live = 4, "instances that a CPU has at a time";
    modules = 20, "modules, one of which each instance has";
    pages = 4, "pages that an instance touches, each with a page fault at the machine's prices";
    work_ns = 5000, "what else an instance computes";
    kept = 0, "1: slots go back as they are, and pages stay: no faults and no resets";
    batch_slots = 16, "slots that are reset together";
    warm_slots_a_cpu = 8, "the limit of unused warm slots, divided by the CPUs";
    spare_slots_a_cpu = 32, "slots a CPU beyond those in use";
    millis = 4, "virtual time that is measured, after a warm-up of half as long";
    call_ns = 460, "a system call that resets: madvise(2) of an empty range, measured on an EPYC \
                    virtual machine";
    stretch_ns = 100, "each range of such a call: an assumption";
    shootdown_ns = 1000, "a TLB shootdown, of which a call makes one if any page goes: an \
                          assumption";
    shootdown_cpu_ns = 300, "the same, for each CPU that runs the process: an assumption";
    interrupt_ns = 500, "what a shootdown takes of each other CPU: an assumption";
}
