//! Linked lists of keys: each key is on at most one of `N` lists.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    newer: u32,
    older: u32,
    list: u8,
}

const FREE: Node = Node { newer: NONE, older: NONE, list: u8::MAX };

/// `N` lists of small keys. All steps are constant time.
pub(crate) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    newest: [u32; N],
    oldest: [u32; N],
    len: [usize; N],
}

impl<const N: usize> Lists<N> {
    pub(crate) fn new() -> Self {
        Lists { nodes: Vec::new(), newest: [NONE; N], oldest: [NONE; N], len: [0; N] }
    }

    pub(crate) fn len(&self, list: usize) -> usize {
        self.len[list]
    }

    /// The list that the key is on.
    pub(crate) fn list_of(&self, key: u64) -> Option<usize> {
        self.nodes.get(key as usize).map(|node| usize::from(node.list)).filter(|&list| list < N)
    }

    /// The key that has been on the list longest.
    pub(crate) fn oldest(&self, list: usize) -> Option<u64> {
        Some(self.oldest[list]).filter(|&key| key != NONE).map(u64::from)
    }

    pub(crate) fn push(&mut self, list: usize, key: u64) {
        let index = key as usize;
        if self.nodes.len() <= index {
            self.nodes.resize((index + 1).next_power_of_two(), FREE);
        }
        assert_eq!(self.nodes[index].list, u8::MAX, "key {key} is on a list already");
        let older = std::mem::replace(&mut self.newest[list], key as u32);
        match older {
            NONE => self.oldest[list] = key as u32,
            _ => self.nodes[older as usize].newer = key as u32,
        }
        self.nodes[index] = Node { newer: NONE, older, list: list as u8 };
        self.len[list] += 1;
    }

    pub(crate) fn remove(&mut self, key: u64) {
        let node = std::mem::replace(&mut self.nodes[key as usize], FREE);
        let list = usize::from(node.list);
        match node.newer {
            NONE => self.newest[list] = node.older,
            newer => self.nodes[newer as usize].older = node.older,
        }
        match node.older {
            NONE => self.oldest[list] = node.newer,
            older => self.nodes[older as usize].newer = node.newer,
        }
        self.len[list] -= 1;
    }

    /// Removes the key that has been on the list longest.
    pub(crate) fn pop(&mut self, list: usize) -> Option<u64> {
        let key = self.oldest(list)?;
        self.remove(key);
        Some(key)
    }

    /// Makes the key the newest of a list.
    pub(crate) fn renew(&mut self, list: usize, key: u64) {
        self.remove(key);
        self.push(list, key);
    }
}

/// A value for each small key.
pub(crate) struct Marks<T>(Vec<T>);

impl<T: Copy + Default> Marks<T> {
    pub(crate) fn new() -> Self {
        Marks(Vec::new())
    }

    pub(crate) fn get(&self, key: u64) -> T {
        self.0.get(key as usize).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, key: u64, value: T) {
        let index = key as usize;
        if self.0.len() <= index {
            self.0.resize((index + 1).next_power_of_two(), T::default());
        }
        self.0[index] = value;
    }

    pub(crate) fn take(&mut self, key: u64) -> T {
        let value = self.get(key);
        self.set(key, T::default());
        value
    }
}
