//! Every schedule of a tiny program, up to a number of preemptions.
//!
//! Most defects need few preemptions (Musuvathi and Qadeer, "Iterative context bounding for
//! systematic testing of multithreaded programs", PLDI 2007), and with few there are few enough
//! schedules to try all. A preemption is leaving a thread that could go on; who runs when one
//! cannot is free. Stalls are left out.
//!
//! An [`Explorer`] lives over all runs and gives each a [`Source`]. It walks the tree of choices
//! depth first: each run repeats the choices of the last one up to the deepest that has an option
//! left, takes that, and is calm from there on.

use std::cell::RefCell;
use std::rc::Rc;

use super::choice::{Choice, Source};

/// Enumerates schedules.
///
/// ```
/// # use tandem_sim::sched::explore::Explorer;
/// # fn run(source: impl tandem_sim::sched::Source + 'static) {}
/// let mut explorer = Explorer::new(2);
/// while let Some(source) = explorer.next_source() {
///     run(source);
/// }
/// println!("{} schedules", explorer.schedules());
/// ```
#[derive(Debug)]
pub struct Explorer {
    tree: Rc<RefCell<Tree>>,
    schedules: u64,
}

/// The path of the current run through the tree of choices.
#[derive(Debug)]
struct Tree {
    preemptions_max: u32,
    path: Vec<Node>,
    /// How far the current run has come.
    depth: usize,
    /// How many preemptions it has made.
    preemptions: u32,
}

#[derive(Debug)]
struct Node {
    taken: u32,
    /// How many options are tried here.
    options: u32,
    threads: u32,
    is_preemption: bool,
}

impl Explorer {
    /// Enumerates all schedules with up to `preemptions_max` preemptions.
    pub fn new(preemptions_max: u32) -> Self {
        let tree = Tree { preemptions_max, path: Vec::new(), depth: 0, preemptions: 0 };
        Explorer { tree: Rc::new(RefCell::new(tree)), schedules: 0 }
    }

    /// A source for the next run, or `None` when all schedules were tried. The run before must be
    /// over.
    pub fn next_source(&mut self) -> Option<impl Source + use<>> {
        {
            let mut tree = self.tree.borrow_mut();
            if self.schedules > 0 {
                tree.advance()?;
            }
            (tree.depth, tree.preemptions) = (0, 0);
        }
        self.schedules += 1;
        Some(Walk { tree: Rc::clone(&self.tree) })
    }

    /// How many schedules were begun.
    pub fn schedules(&self) -> u64 {
        self.schedules
    }
}

impl Tree {
    /// Moves to the next path, if there is one.
    fn advance(&mut self) -> Option<()> {
        // What a run that was cut short did not repeat stays untried: it could not get there.
        self.path.truncate(self.depth);
        while let Some(node) = self.path.last_mut() {
            if node.taken + 1 < node.options {
                node.taken += 1;
                return Some(());
            }
            self.path.pop();
        }
        None
    }
}

/// One run's walk down the tree.
struct Walk {
    tree: Rc<RefCell<Tree>>,
}

impl Source for Walk {
    fn next(&mut self, choice: &Choice<'_>) -> u32 {
        let tree = &mut *self.tree.borrow_mut();
        if tree.depth == tree.path.len() {
            let may_preempt = tree.preemptions < tree.preemptions_max;
            let is_free = !choice.may_stay() || may_preempt;
            let options = if is_free { choice.threads() } else { 1 };
            let is_preemption = choice.may_stay();
            tree.path.push(Node { taken: 0, options, threads: choice.threads(), is_preemption });
        }
        let node = &tree.path[tree.depth];
        assert!(
            node.threads == choice.threads() && node.is_preemption == choice.may_stay(),
            "the program is not deterministic: choice {} had {} threads and now has {}",
            tree.depth,
            node.threads,
            choice.threads()
        );
        tree.preemptions += u32::from(node.is_preemption && node.taken > 0);
        tree.depth += 1;
        node.taken
    }
}
