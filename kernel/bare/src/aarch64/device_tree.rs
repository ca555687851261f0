//! The device tree, after the Devicetree Specification 0.4: memory, CPUs, command line.

use core::ffi::CStr;

use crate::boot::BootInfo;
use crate::direct_map;

/// Where QEMU puts it for images that are not Linux's: at the start of memory.
pub(super) const DEFAULT_ADDRESS: u64 = 0x4000_0000;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;

/// The tree's bytes, from a place on.
#[derive(Clone, Copy)]
struct Bytes(&'static [u8]);

impl Bytes {
    fn from(self, offset: u32) -> Self {
        Bytes(&self.0[offset as usize..])
    }

    /// Numbers are big-endian.
    fn word(self, offset: u32) -> u32 {
        let bytes = self.from(offset).0[..4].try_into().expect("four bytes");
        u32::from_be_bytes(bytes)
    }

    /// A number of two words.
    fn long(self, offset: u32) -> u64 {
        u64::from(self.word(offset)) << 32 | u64::from(self.word(offset + 4))
    }

    fn text(self) -> &'static str {
        let text = CStr::from_bytes_until_nul(self.0).expect("texts end with a zero byte");
        text.to_str().expect("names and options are UTF-8")
    }
}

/// Reads the tree at `address`. `own` is the number of the running CPU.
pub(super) fn read(address: u64, own: u32) -> BootInfo {
    // SAFETY: below 4 GiB, which is mapped.
    let header = Bytes(unsafe { core::slice::from_raw_parts(direct_map::at(address), 8) });
    assert_eq!(header.word(0), MAGIC, "a device tree lies at {address:#x}");
    let bytes = header.word(4) as usize;
    // SAFETY: as above, the length of the tree, which is reserved below.
    let tree = Bytes(unsafe { core::slice::from_raw_parts(direct_map::at(address), bytes) });
    let mut boot = BootInfo::new("");
    boot.reserve(address, address + bytes as u64);
    boot.add_cpu(own);
    for_each_property(tree, |node, name, value| {
        let is = |kind: &str| node.split('@').next() == Some(kind);
        match name {
            // QEMU's root says two words for an address and for a size, and its node of CPUs one.
            "reg" if is("memory") => {
                let (start, bytes) = (value.long(0), value.long(8));
                boot.add_memory(start, start + bytes);
            }
            "reg" if is("cpu") && value.word(0) != own => boot.add_cpu(value.word(0)),
            "bootargs" if is("chosen") => boot.command_line = value.text(),
            _ => {}
        }
    });
    boot
}

/// Calls `each` with the name of a node, the name of a property of it, and its value.
fn for_each_property(tree: Bytes, mut each: impl FnMut(&'static str, &'static str, Bytes)) {
    const DEPTH_MAX: usize = 8;
    let (structure, strings) = (tree.from(tree.word(8)), tree.from(tree.word(12)));
    let (mut nodes, mut depth) = ([""; DEPTH_MAX], 0);
    let mut at = 0;
    loop {
        let token = structure.word(at);
        at += 4;
        match token {
            BEGIN_NODE => {
                nodes[depth] = structure.from(at).text();
                at += (nodes[depth].len() as u32 + 1).next_multiple_of(4);
                depth += 1;
            }
            END_NODE => depth -= 1,
            PROPERTY => {
                let (bytes, name) = (structure.word(at), structure.word(at + 4));
                at += 8;
                each(nodes[depth - 1], strings.from(name).text(), structure.from(at));
                at += bytes.next_multiple_of(4);
            }
            NOP => {}
            _ => return,
        }
    }
}
