//! The elements that match a [`Plan`], from right to left: those that may be the rightmost part are
//! looked for in the row of nodes, and what must be around one is looked for above it. Where few
//! elements may be that part this is less work than a pass that keeps the path of each element.
//!
//! Invariants:
//! - It finds what a pass finds, or gives up, and a pass answers: where a link upwards leads to no
//!   node that may have children, and after more steps than two passes would take, as elements may
//!   be looked at more than once. Only that a parent is another element than the one around a
//!   node, which is damage to a pass, it does not see.
//! - Of siblings it knows their number among those of one type alone, and of rightmost parts.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::document::Document;
use crate::error::Damage;
use crate::layout::{NONE, NodeKind, NodeRecord};
use crate::node::Node;
use crate::pass::{Candidate, WorkBudget, pass_all};
use crate::plan::Plan;

/// Steps to a parent for each node of the document, and looks at an attribute for each attribute,
/// before it is given up.
const WORK_MAX: usize = 2;

/// A search; see the module.
pub(crate) struct Climb<'p, 'd> {
    document: &'d Document<'d>,
    plan: &'p mut Plan,
    /// Of each part, the parent that was asked last, and whether what is to the left of the part
    /// is there for its children.
    asked: Vec<(u32, bool)>,
    /// How many elements of a name a parent had so far.
    types: HashMap<(u32, u32), i32, RandomState>,
    steps_left: usize,
    left: WorkBudget,
}

impl<'p, 'd> Climb<'p, 'd> {
    pub(crate) fn new(document: &'d Document<'d>, plan: &'p mut Plan) -> Climb<'p, 'd> {
        let asked = vec![(NONE, false); plan.tests.len()];
        Climb {
            document,
            left: WorkBudget::of(document, plan, WORK_MAX),
            plan,
            asked,
            types: HashMap::default(),
            steps_left: document.nodes().len() * WORK_MAX,
        }
    }

    /// The elements that match, `max` at most; with damage noted, some of them. `None` if it was
    /// given up.
    pub(crate) fn run(
        mut self,
        nodes: impl Iterator<Item = (u32, &'d NodeRecord)>,
        max: usize,
    ) -> Option<Vec<Node<'d>>> {
        let (marks, rightmost) = (self.plan.rightmost_marks(), self.plan.last);
        let mut found = Vec::new();
        for (id, record) in nodes {
            if !record.is(NodeKind::Element) || marks != 0 && record.tag & marks == 0 {
                continue;
            }
            let Some(named) = self.plan.names.get(record.name() as usize) else {
                self.document.note(Damage::Node { node: id });
                break;
            };
            let may_be = named & rightmost;
            if may_be == 0 || !self.is_any(may_be, record)? {
                continue;
            }
            found.push(Node::new(self.document, id));
            if found.len() >= max {
                break;
            }
        }
        Some(found)
    }

    /// Whether an element is one of these rightmost parts.
    fn is_any(&mut self, mut parts: u64, record: &'d NodeRecord) -> Option<bool> {
        let mut number_of_type = 0;
        if parts & self.plan.typed != 0 {
            let many = self.types.entry((record.parent, record.name())).or_default();
            *many = many.saturating_add(1);
            number_of_type = *many;
        }
        while parts != 0 {
            let part = parts.trailing_zeros() as usize;
            parts &= parts - 1;
            if self.passes(part, record, number_of_type)? && self.is_below(part, record.parent)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether an element passes the tests of a part, whatever is around the element.
    #[inline]
    fn passes(&mut self, part: usize, record: &'d NodeRecord, number_of_type: i32) -> Option<bool> {
        if self.plan.tested >> part & 1 == 0 {
            return Some(true);
        }
        let attributes = self.document.attributes_of(record);
        self.left.take_attributes(attributes.len())?;
        let candidate = Candidate { record, attributes, number: 0, number_of_type };
        pass_all(self.document, &mut self.plan.tests[part], &candidate, &mut self.left)
    }

    /// Whether what is to the left of a part is there for the children of this parent.
    fn is_below(&mut self, part: usize, parent: u32) -> Option<bool> {
        let bit = 1 << part;
        if self.plan.first & bit != 0 {
            return Some(true);
        }
        let (asked, answer) = self.asked[part];
        if asked == parent && parent != NONE {
            return Some(answer);
        }
        let answer = self.look_above(part - 1, parent, self.plan.below.descendant & bit != 0)?;
        self.asked[part] = (parent, answer);
        Some(answer)
    }

    /// Whether the element here, or, if that is `any_above`, one around it, is this part.
    fn look_above(&mut self, part: usize, here: u32, any_above: bool) -> Option<bool> {
        let bit = 1 << part;
        // What is not above the nearest such element is not above one further out.
        let nearest_decides = self.plan.below.descendant & bit != 0;
        let mut at = here;
        loop {
            self.steps_left = self.steps_left.checked_sub(1)?;
            if at == NONE {
                return Some(false);
            }
            let record = self.document.record(at)?;
            match NodeKind::parse(record.kind())? {
                NodeKind::Element => {}
                NodeKind::Document | NodeKind::Fragment => return Some(false),
                _ => return None,
            }
            let named = *self.plan.names.get(record.name() as usize)?;
            if named & bit != 0 && self.passes(part, record, 0)? {
                if self.is_below(part, record.parent)? {
                    return Some(true);
                }
                if nearest_decides {
                    return Some(false);
                }
            }
            if !any_above {
                return Some(false);
            }
            at = record.parent;
        }
    }
}
