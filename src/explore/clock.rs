//! Vector clocks. Each turn of a schedule has one, so clocks share what they have in common: a clock
//! is a tree, and a change copies the way to one leaf.

use std::{array, rc::Rc};

use crate::Tid;

/// The children of an inner node, and the tasks of a leaf: a power of two.
const WIDTH: usize = 1 << BITS;
const BITS: u32 = 4;

/// For each task, by its number, the number of its turns that come before.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    root: Option<Rc<Node>>,
    /// The inner nodes on the way to a leaf.
    height: u32,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf([u32; WIDTH]),
    Inner([Option<Rc<Node>>; WIDTH]),
}

/// The most kernels whose tasks have places.
pub(super) const KERNELS: usize = 32;

/// Daemons have no turns here. The first place is that of [`Tid::FAULTS`], the next that of the kernel. Tasks of
/// several kernels have those places behind these that are free while no task is of a kernel alone.
pub(super) fn index(task: Tid) -> usize {
    match task.kernel() {
        Some(kernel) => u64::from(task.alone()) as usize * KERNELS + kernel.index() + 2,
        None => u64::from(task).wrapping_add(1) as usize,
    }
}

/// Returns the place in a node of this height of what leads to an index.
fn place(at: usize, height: u32) -> usize {
    (at >> (BITS * height)) % WIDTH
}

impl Clock {
    pub(super) fn of(&self, task: Tid) -> u32 {
        let at = index(task);
        let mut next = self.root.as_ref().filter(|_| self.has_place(at));
        let mut height = self.height;
        while let Some(node) = next {
            match &**node {
                Node::Leaf(turns) => return turns[place(at, 0)],
                Node::Inner(nodes) => next = nodes[place(at, height)].as_ref(),
            }
            height -= 1;
        }
        0
    }

    pub(super) fn set(&mut self, task: Tid, turns: u32) {
        let at = index(task);
        while !self.has_place(at) {
            self.grow();
        }
        let mut next = &mut self.root;
        let mut height = self.height;
        loop {
            let node = next.get_or_insert_with(|| Rc::new(Node::empty(height)));
            match Rc::make_mut(node) {
                Node::Leaf(all) => {
                    all[place(at, 0)] = turns;
                    return;
                }
                Node::Inner(nodes) => next = &mut nodes[place(at, height)],
            }
            height -= 1;
        }
    }

    /// Has each task's number be at least that of the other clock.
    pub(super) fn join(&mut self, other: &Self) {
        let Some(theirs) = &other.root else {
            return;
        };
        while self.height < other.height {
            self.grow();
        }
        let mut node = &mut self.root;
        for _ in other.height..self.height {
            let inner = node.get_or_insert_with(|| Rc::new(Node::empty(1)));
            let Node::Inner(nodes) = Rc::make_mut(inner) else {
                unreachable!("a leaf has no node below it");
            };
            node = &mut nodes[0];
        }
        *node = Some(match node {
            Some(mine) => joined(mine, theirs),
            None => Rc::clone(theirs),
        });
    }

    fn has_place(&self, at: usize) -> bool {
        at.checked_shr(BITS * (self.height + 1)).unwrap_or(0) == 0
    }

    fn grow(&mut self) {
        self.height += 1;
        if let Some(root) = self.root.take() {
            let mut nodes = array::from_fn(|_| None);
            nodes[0] = Some(root);
            self.root = Some(Rc::new(Node::Inner(nodes)));
        }
    }
}

impl Node {
    fn empty(height: u32) -> Self {
        match height {
            0 => Self::Leaf([0; WIDTH]),
            _ => Self::Inner(array::from_fn(|_| None)),
        }
    }

    /// Returns whether the numbers or the children are the same.
    fn has_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Option<Rc<Self>>, &Option<Rc<Self>>)| {
            a.as_ref().map(Rc::as_ptr) == b.as_ref().map(Rc::as_ptr)
        };
        match (self, other) {
            (Self::Leaf(a), Self::Leaf(b)) => a == b,
            (Self::Inner(a), Self::Inner(b)) => a.iter().zip(b).all(is_same),
            _ => false,
        }
    }
}

/// Returns the join of two nodes of one height: one of the two, if it has all that the other has.
fn joined(mine: &Rc<Node>, theirs: &Rc<Node>) -> Rc<Node> {
    if Rc::ptr_eq(mine, theirs) {
        return Rc::clone(mine);
    }
    let all = match (&**mine, &**theirs) {
        (Node::Leaf(a), Node::Leaf(b)) => Node::Leaf(array::from_fn(|at| a[at].max(b[at]))),
        (Node::Inner(a), Node::Inner(b)) => {
            Node::Inner(array::from_fn(|at| match (&a[at], &b[at]) {
                (Some(a), Some(b)) => Some(joined(a, b)),
                (a, b) => a.as_ref().or(b.as_ref()).cloned(),
            }))
        }
        _ => unreachable!("nodes of one height are of one kind"),
    };
    if all.has_same(mine) {
        Rc::clone(mine)
    } else if all.has_same(theirs) {
        Rc::clone(theirs)
    } else {
        Rc::new(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Draws;

    #[test]
    fn a_clock_is_what_a_vector_of_its_numbers_is() {
        const TASKS: u64 = 5_000;
        let mut draws = Draws::new(0);
        let mut clocks = vec![(Clock::default(), vec![0; TASKS as usize]); 8];
        for _ in 0..2_000 {
            let at = draws.below(8) as usize;
            // Most tasks are among the first, so that the clocks have different heights.
            let most = 1 << draws.below(13);
            let (task, turns) = (draws.below(most), draws.below(100) as u32);
            let other = clocks[draws.below(8) as usize].clone();
            let (clock, vector) = &mut clocks[at];
            if draws.below(2) == 0 {
                clock.set(task.into(), turns);
                vector[task as usize] = turns;
            } else {
                clock.join(&other.0);
                for (mine, theirs) in vector.iter_mut().zip(&other.1) {
                    *mine = (*mine).max(*theirs);
                }
            }
            for (task, turns) in (0..).zip(vector) {
                assert_eq!(clock.of(Tid::from(task)), *turns, "task {task}");
            }
        }
    }

    #[test]
    fn a_clock_that_has_all_of_another_is_shared() {
        let mut one = Clock::default();
        one.set(Tid::from(300), 1);
        let mut other = one.clone();
        other.set(Tid::from(7), 1);
        one.join(&other);
        let (Some(one), Some(other)) = (&one.root, &other.root) else {
            panic!("both have tasks");
        };
        assert!(Rc::ptr_eq(one, other));
    }
}
