//! One pass over the elements of a document that answers a [`Plan`]: which parts of the selector an
//! element is follows from what its parent, its ancestors and its siblings are, and each element is
//! looked at once.
//!
//! Invariants:
//! - Elements come in document order, each behind its parent: who comes elsewhere is damage. So no
//!   link is followed twice, and a pass takes no more steps than nodes, parts and attributes are,
//!   whatever the document says.
//! - All values together are no longer than those of a sound document of this size.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::document::Document;
use crate::error::Damage;
use crate::layout::{AttributeRecord, DOCUMENT, NONE, NodeKind, NodeRecord};
use crate::limits::SHARED_BYTES_MAX;
use crate::node::Node;
use crate::plan::{Compound, CompoundTest, Plan, ValueCheck};

/// A pass over a document: what is known of each element on the way to the present one.
pub(crate) struct Pass<'p, 'd> {
    document: &'d Document<'d>,
    plan: &'p mut Plan,
    /// The elements around the next one, with the document below them.
    path: Vec<PathFrame>,
    /// The last element, which is not in the path before one of its children comes.
    last: PathFrame,
    /// How many elements of a name a parent had so far.
    types: HashMap<(u32, u32), i32, RandomState>,
    left: WorkBudget,
}

/// What may still be looked at.
pub(crate) struct WorkBudget {
    attributes: usize,
    value_bytes: usize,
}

impl WorkBudget {
    /// So many looks at each attribute, and at each value that a sound document of this size has.
    pub(crate) fn of(document: &Document<'_>, plan: &Plan, looks: usize) -> WorkBudget {
        let values = plan.tests.iter().map(|tests| values(tests)).sum::<usize>();
        let shared = (document.nodes().len() + document.attributes().len()) * SHARED_BYTES_MAX;
        WorkBudget {
            attributes: document.attributes().len().saturating_mul(looks),
            value_bytes: (document.text().len() + shared).saturating_mul(values * looks),
        }
    }

    /// Takes looks at attributes, if there are so many left.
    #[inline]
    pub(crate) fn take_attributes(&mut self, many: usize) -> Option<()> {
        self.attributes = self.attributes.checked_sub(many)?;
        Some(())
    }
}

/// An element whose children may come.
struct PathFrame {
    id: u32,
    /// The parts that it is.
    is: u64,
    /// The parts that it or an ancestor is.
    above: u64,
    /// The parts that its last child is.
    child_before: u64,
    /// The parts that any of its children is.
    children_before: u64,
    /// How many of its children came.
    children: i32,
}

impl PathFrame {
    fn new(id: u32, is: u64, above: u64) -> PathFrame {
        PathFrame { id, is, above: above | is, child_before: 0, children_before: 0, children: 0 }
    }
}

/// The element that is looked at.
pub(crate) struct Candidate<'d> {
    pub(crate) record: &'d NodeRecord,
    pub(crate) attributes: &'d [AttributeRecord],
    /// Its place among its siblings, where that is asked for.
    pub(crate) number: i32,
    /// Its place among those of its type, where that is asked for.
    pub(crate) number_of_type: i32,
}

impl<'p, 'd> Pass<'p, 'd> {
    pub(crate) fn new(document: &'d Document<'d>, plan: &'p mut Plan) -> Pass<'p, 'd> {
        let left = WorkBudget::of(document, plan, 1);
        let path = vec![PathFrame::new(DOCUMENT, 0, 0)];
        Pass {
            document,
            plan,
            path,
            last: PathFrame::new(NONE, 0, 0),
            types: HashMap::default(),
            left,
        }
    }

    /// The elements that match, `max` at most; with damage noted, some of them.
    pub(crate) fn run(
        mut self,
        nodes: impl Iterator<Item = (u32, &'d NodeRecord)>,
        max: usize,
    ) -> Vec<Node<'d>> {
        let (marks, rightmost) = (self.plan.marks, self.plan.last);
        if self.plan.needs_path {
            return self.collect(nodes, max, |pass, id, record| {
                Some(pass.step(id, record)? & rightmost != 0)
            });
        }
        let nodes = nodes.filter(|(_, record)| marks == 0 || record.tag & marks != 0);
        self.collect(nodes, max, |pass, _, record| Some(pass.alone(record)? != 0))
    }

    /// The elements of which `is` says so, until it says that there is damage.
    #[inline]
    fn collect(
        &mut self,
        nodes: impl Iterator<Item = (u32, &'d NodeRecord)>,
        max: usize,
        mut is: impl FnMut(&mut Self, u32, &'d NodeRecord) -> Option<bool>,
    ) -> Vec<Node<'d>> {
        let (document, mut found) = (self.document, Vec::new());
        for (id, record) in nodes.filter(|(_, record)| record.is(NodeKind::Element)) {
            match is(self, id, record) {
                Some(false) => {}
                Some(true) => {
                    found.push(Node::new(document, id));
                    if found.len() >= max {
                        break;
                    }
                }
                None => {
                    document.note(Damage::Node { node: id });
                    break;
                }
            }
        }
        found
    }

    /// The parts that an element is where nothing but itself matters.
    #[inline]
    fn alone(&mut self, record: &'d NodeRecord) -> Option<u64> {
        let may_be = *self.plan.names.get(record.name() as usize)?;
        if may_be == 0 { Some(0) } else { self.parts(may_be, record, 0, 0) }
    }

    /// The parts that an element is, which becomes one of the path.
    fn step(&mut self, id: u32, record: &'d NodeRecord) -> Option<u64> {
        if record.parent == self.last.id {
            let last = std::mem::replace(&mut self.last, PathFrame::new(NONE, 0, 0));
            self.path.push(last);
        } else {
            while self.path.last()?.id != record.parent {
                self.path.pop();
            }
        }
        let plan = &*self.plan;
        let parent = self.path.last_mut()?;
        let below = plan.below;
        let fits = plan.first
            | (parent.is << 1) & below.child
            | (parent.above << 1) & below.descendant
            | (parent.child_before << 1) & below.next
            | (parent.children_before << 1) & below.later;
        parent.children = parent.children.saturating_add(1);
        let (number, above) = (parent.children, parent.above);
        let named = *plan.names.get(record.name() as usize)?;
        let mut number_of_type = 0;
        if named & plan.typed != 0 {
            let many = self.types.entry((record.parent, record.name())).or_default();
            *many = many.saturating_add(1);
            number_of_type = *many;
        }
        let is = self.parts(fits & named, record, number, number_of_type)?;
        let parent = self.path.last_mut()?;
        parent.child_before = is;
        parent.children_before |= is;
        self.last = PathFrame::new(id, is, above);
        Some(is)
    }

    /// Which of these parts an element is.
    #[inline]
    fn parts(
        &mut self,
        may_be: u64,
        record: &'d NodeRecord,
        number: i32,
        number_of_type: i32,
    ) -> Option<u64> {
        let (mut is, mut rest) = (may_be & !self.plan.tested, may_be & self.plan.tested);
        if rest == 0 {
            return Some(is);
        }
        let attributes = self.document.attributes_of(record);
        self.left.take_attributes(attributes.len())?;
        let place = Candidate { record, attributes, number, number_of_type };
        while rest != 0 {
            let part = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if pass_all(self.document, &mut self.plan.tests[part], &place, &mut self.left)? {
                is |= 1 << part;
            }
        }
        Some(is)
    }
}

/// Tests of a value among these, those in brackets included.
fn values(tests: &[CompoundTest]) -> usize {
    let of = |test: &CompoundTest| match test {
        CompoundTest::Attribute(..) => 1,
        CompoundTest::Any { parts, .. } => parts.iter().map(|part| values(&part.tests)).sum(),
        CompoundTest::Never | CompoundTest::Root | CompoundTest::Place { .. } => 0,
    };
    tests.iter().map(of).sum()
}

/// Whether an element passes all of these; `None` when more was looked at than there can be.
pub(crate) fn pass_all(
    document: &Document<'_>,
    tests: &mut [CompoundTest],
    place: &Candidate<'_>,
    left: &mut WorkBudget,
) -> Option<bool> {
    for test in tests {
        let passes = match test {
            CompoundTest::Attribute(name, check) => {
                let mark = NodeRecord::mark((*name).into());
                if mark != 0 && place.record.tag & mark == 0 {
                    return Some(false);
                }
                match place.attributes.iter().find(|attribute| attribute.name == *name) {
                    Some(attribute) => pass(document, check, attribute, left)?,
                    None => false,
                }
            }
            CompoundTest::Never => false,
            CompoundTest::Root => place.record.parent == DOCUMENT,
            CompoundTest::Place { of_type, places } => {
                places.matches_index(if *of_type { place.number_of_type } else { place.number })
            }
            CompoundTest::Any { parts, wanted } => any(document, parts, place, left)? == *wanted,
        };
        if !passes {
            return Some(false);
        }
    }
    Some(true)
}

#[inline]
fn pass(
    document: &Document<'_>,
    check: &mut ValueCheck,
    attribute: &AttributeRecord,
    left: &mut WorkBudget,
) -> Option<bool> {
    if check.is_of_anything() {
        return Some(true);
    }
    if let Some(passes) = check.known(attribute) {
        return Some(passes);
    }
    let (passes, bytes) = check.look(document, attribute);
    left.value_bytes = left.value_bytes.checked_sub(bytes)?;
    Some(passes)
}

fn any(
    document: &Document<'_>,
    parts: &mut [Compound],
    place: &Candidate<'_>,
    left: &mut WorkBudget,
) -> Option<bool> {
    for part in parts {
        let named = match &part.names {
            Some(names) => *names.get(place.record.name() as usize)?,
            None => true,
        };
        if named && pass_all(document, &mut part.tests, place, left)? {
            return Some(true);
        }
    }
    Some(false)
}
