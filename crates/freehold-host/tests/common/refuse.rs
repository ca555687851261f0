//! System calls that the kernel refuses to one thread.
//!
//! A filter (`seccomp(2)`) belongs to the thread that installs it, for good: so each refusal has a
//! thread of its own, and what was refused there can be tried again on another one.

use std::collections::BTreeMap;
use std::thread;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// A system call that is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    number: libc::c_long,
    errno: libc::c_int,
    /// Only if these bits of an argument have this value: position, bits, value.
    only: Option<(u8, u64, u64)>,
}

/// A call, however made, and what the kernel says to it.
pub(crate) fn refuse(number: libc::c_long, errno: libc::c_int) -> Refused {
    Refused { number, errno, only: None }
}

impl Refused {
    /// Only with this value in an argument.
    pub(crate) fn with(self, argument: u8, value: libc::c_int) -> Self {
        self.with_bits(argument, -1, value)
    }

    /// Only with this value in these bits of an argument.
    pub(crate) fn with_bits(mut self, argument: u8, bits: libc::c_int, value: libc::c_int) -> Self {
        self.only = Some((argument, bits as u32 as u64, value as u32 as u64));
        self
    }

    fn filter(&self) -> Result<BpfProgram, seccompiler::BackendError> {
        let rules = match self.only {
            None => Vec::new(),
            Some((argument, bits, value)) => {
                let op = SeccompCmpOp::MaskedEq(bits);
                let word = SeccompCmpArgLen::Dword;
                let condition = SeccompCondition::new(argument, word, op, value)?;
                vec![SeccompRule::new(vec![condition])?]
            }
        };
        let rules = BTreeMap::from([(self.number, rules)]);
        let (others, this) = (SeccompAction::Allow, SeccompAction::Errno(self.errno as u32));
        let arch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, others, this, arch)?.try_into()
    }
}

/// Has the kernel refuse these calls to the calling thread, and to those that it starts, from now
/// on. Says so, and returns `false`, where it has no filters.
pub(crate) fn refuse_here(calls: &[Refused]) -> bool {
    calls.iter().all(|call| {
        let filter = call.filter().expect("of the form that the kernel knows");
        let applied = apply_filter(&filter);
        if let Err(error) = &applied {
            eprintln!("SKIPPED: no system call can be refused here: {error}");
        }
        applied.is_ok()
    })
}

/// Runs `act` on a thread to which the kernel refuses these calls; `None` where it has no filters.
pub(crate) fn refusing<T: Send>(calls: &[Refused], act: impl FnOnce() -> T + Send) -> Option<T> {
    let act = || refuse_here(calls).then(act);
    let ended = thread::scope(|scope| scope.spawn(act).join());
    ended.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}
