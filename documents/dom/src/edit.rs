//! Changes of a document in a transaction of its heap.
//!
//! Invariants:
//! - What is new (nodes, attributes, names, text) goes behind what is in use, where nothing counts
//!   until the header says so, and the header is written last; what was there is changed through
//!   the log. So a rollback or a kill leaves what was.
//! - No text is changed where it is: several nodes may share it.
//! - Each change checks all that it needs before its first store. If a store fails after that, the
//!   whole transaction is rolled back, also when its caller goes on.

mod append;

use holdfast_heap::{Backing, Changes, HeapError, Object};
use zerocopy::IntoBytes;

use crate::document::Document;
use crate::error::{ChangeError, Damage, DomError, ParseLimit};
use crate::layout::{AttributeRecord, Header, NONE, NodeKind, NodeRecord, ORDERED, TableCapacity};
use crate::limits::ATTRIBUTES_MAX;
use crate::name::{attribute_name, element_name};
use crate::namespace::Namespace;
use crate::node::QualifiedName;

/// A document that is being changed; see [`Documents::edit`](crate::Documents::edit).
pub struct Edit<'tx, 'heap, B: Backing> {
    tx: &'tx mut Changes<'heap, B>,
    name: String,
    object: Object,
    header: Header,
    /// A store failed in the middle of a change.
    failed: bool,
}

impl<'tx, 'heap, B: Backing> Edit<'tx, 'heap, B> {
    pub(crate) fn begin(tx: &'tx mut Changes<'heap, B>, name: &str) -> Result<Self, DomError> {
        let object =
            tx.root(name).ok_or_else(|| DomError::NoSuchDocument { name: name.to_owned() })?;
        let header = *Document::from_bytes(tx.bytes(object).unwrap_or_default())?.header();
        Ok(Edit { tx, name: name.to_owned(), object, header, failed: false })
    }

    /// Makes the changes those of the document.
    pub(crate) fn finish(self) -> Result<(), DomError> {
        if self.failed {
            return Err(HeapError::TransactionAborted.into());
        }
        Ok(self.tx.write(self.object, 0, self.header.summed().as_bytes())?)
    }

    /// The document as it stands.
    ///
    /// # Errors
    /// [`DomError::Damaged`].
    pub fn document(&self) -> Result<Document<'_>, DomError> {
        Document::with_header(self.header, self.tx.bytes(self.object).unwrap_or_default())
    }

    /// Makes an element that is nowhere yet; a name of HTML is brought to lower case. A template
    /// has contents, in which nothing is yet.
    ///
    /// # Errors
    /// [`ChangeError::BadName`], no room.
    pub fn create_element(&mut self, namespace: Namespace, name: &str) -> Result<u32, DomError> {
        let is_template = namespace == Namespace::Html && name.eq_ignore_ascii_case("template");
        let name = element_name(name, namespace == Namespace::Html)?;
        self.change(|edit| {
            let name = edit.name_number(namespace, &name)?;
            let tag = NodeRecord::element(name, [], is_template);
            if !is_template {
                return edit.push_node(NodeRecord { tag, ..NodeRecord::default() });
            }
            // The contents are the next node.
            edit.reserve(TableCapacity { nodes: 2, ..TableCapacity::default() })?;
            let template = edit.push_node(NodeRecord { tag, ..NodeRecord::default() })?;
            let tag = NodeKind::Fragment as u32;
            edit.push_node(NodeRecord { tag, data: template, ..NodeRecord::default() })?;
            Ok(template)
        })
    }

    /// Makes a text that is nowhere yet.
    ///
    /// # Errors
    /// No room.
    pub fn create_text(&mut self, text: &str) -> Result<u32, DomError> {
        self.create(NodeKind::Text, text)
    }

    /// Makes a comment that is nowhere yet.
    ///
    /// # Errors
    /// No room.
    pub fn create_comment(&mut self, text: &str) -> Result<u32, DomError> {
        self.create(NodeKind::Comment, text)
    }

    fn create(&mut self, kind: NodeKind, text: &str) -> Result<u32, DomError> {
        self.change(|edit| {
            let (data, first) = edit.push_text(text)?;
            edit.push_node(NodeRecord { tag: kind as u32, data, first, ..NodeRecord::default() })
        })
    }

    /// Puts a node, with what is in it, behind all children of another; takes it from where it was.
    ///
    /// # Errors
    /// [`ChangeError`] when that cannot be; no room.
    pub fn append(&mut self, parent: u32, child: u32) -> Result<(), DomError> {
        self.check_place(parent, child)?;
        self.change(|edit| {
            edit.unlink(child)?;
            edit.link(parent, child, NONE)
        })
    }

    /// Puts a node, with what is in it, before a sibling; takes it from where it was.
    ///
    /// # Errors
    /// [`ChangeError`] when that cannot be; no room.
    pub fn insert_before(&mut self, sibling: u32, child: u32) -> Result<(), DomError> {
        let parent = self.node(sibling)?.parent;
        if parent == NONE {
            return Err(ChangeError::NoParent { node: sibling }.into());
        }
        if sibling == child {
            return Ok(());
        }
        self.check_place(parent, child)?;
        self.change(|edit| {
            edit.unlink(child)?;
            edit.link(parent, child, sibling)
        })
    }

    /// Takes a node, with what is in it, out of the tree. It can be put elsewhere; if it is not,
    /// its bytes stay unused until [`Documents::compact`](crate::Documents::compact).
    ///
    /// # Errors
    /// [`ChangeError::NoSuchNode`]; no room.
    pub fn remove(&mut self, node: u32) -> Result<(), DomError> {
        self.node(node)?;
        self.change(|edit| edit.unlink(node))
    }

    /// Gives a text or comment other text, or puts a text in the place of all that an element
    /// holds.
    ///
    /// # Errors
    /// [`ChangeError`] for a node of another kind; no room.
    pub fn set_text(&mut self, node: u32, text: &str) -> Result<(), DomError> {
        let record = self.node(node)?;
        match NodeKind::parse(record.kind()) {
            Some(NodeKind::Text | NodeKind::Comment) => self.change(|edit| {
                let (data, first) = edit.push_text(text)?;
                edit.write_node(node, NodeRecord { data, first, ..record })
            }),
            Some(NodeKind::Element | NodeKind::Fragment) => {
                self.change(|edit| edit.replace_children(node, text))
            }
            _ => Err(ChangeError::WrongKind { node, wanted: "text, comment or element" }.into()),
        }
    }

    fn replace_children(&mut self, node: u32, text: &str) -> Result<(), DomError> {
        let mut steps_left = self.header.nodes.used;
        loop {
            let child = self.node(node)?.first_child();
            if child == NONE {
                break;
            }
            steps_left =
                steps_left.checked_sub(1).ok_or(DomError::Damaged(Damage::Circle { node }))?;
            self.unlink(child)?;
        }
        if text.is_empty() {
            return Ok(());
        }
        let child = self.create_text(text)?;
        self.append(node, child)
    }

    /// Gives the first attribute of this name, as the page writes it (`xlink:href`), another value;
    /// an element that has none of the name gets one without a namespace. In HTML the name is
    /// brought to lower case.
    ///
    /// # Errors
    /// [`ChangeError::WrongKind`], [`ChangeError::BadName`]; [`DomError::Limit`] for an element
    /// with 1,023 of them; no room.
    pub fn set_attribute(&mut self, node: u32, name: &str, value: &str) -> Result<(), DomError> {
        let (record, name) = self.attribute_place(node, name)?;
        let found = self.find_attribute(&record, &name)?;
        if found.is_none() && record.attributes() >= ATTRIBUTES_MAX {
            return Err(DomError::Limit {
                limit: ParseLimit::Attributes,
                max: ATTRIBUTES_MAX.into(),
            });
        }
        self.change(|edit| {
            let (value, length) = edit.push_value(value)?;
            if let Some((number, old)) = found {
                return edit.write_attribute(number, AttributeRecord { value, length, ..old });
            }
            let name = edit.name_number(Namespace::None, &name)?;
            edit.add_attribute(node, record, AttributeRecord { name: name as u16, length, value })
        })
    }

    /// Takes the first attribute of this name, as the page writes it, from an element; says whether
    /// it had it.
    ///
    /// # Errors
    /// [`ChangeError::WrongKind`], [`ChangeError::BadName`]; no room.
    pub fn remove_attribute(&mut self, node: u32, name: &str) -> Result<bool, DomError> {
        let (record, name) = self.attribute_place(node, name)?;
        let Some((number, _)) = self.find_attribute(&record, &name)? else { return Ok(false) };
        let end = record.data + record.attributes();
        let before = self.attributes(record.data, number)?;
        let behind = self.attributes(number + 1, end)?;
        let left: Vec<u32> =
            before.iter().chain(&behind).map(|attribute| attribute.name.into()).collect();
        self.change(|edit| {
            for (number, attribute) in (number..).zip(behind) {
                edit.write_attribute(number, attribute)?;
            }
            edit.write_node(node, record.with_attributes(left))
        })?;
        Ok(true)
    }

    /// Runs a change whose stores must all happen.
    fn change<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, DomError>,
    ) -> Result<R, DomError> {
        let before = self.failed;
        self.failed = true;
        let result = work(self)?;
        self.failed = before;
        Ok(result)
    }

    fn node(&self, node: u32) -> Result<NodeRecord, DomError> {
        let document = self.document()?;
        match document.record(node) {
            Some(record) if node != NONE && NodeKind::parse(record.kind()).is_some() => Ok(*record),
            _ => Err(ChangeError::NoSuchNode { node }.into()),
        }
    }

    /// The node that a link leads to.
    fn linked(&self, node: u32) -> Result<NodeRecord, DomError> {
        self.node(node).map_err(|_| DomError::Damaged(Damage::Node { node }))
    }

    /// Whether one node may be put into the other.
    fn check_place(&self, parent: u32, child: u32) -> Result<(), DomError> {
        let kind = |node| self.node(node).map(|record| NodeKind::parse(record.kind()));
        let (holder, held) = (kind(parent)?, kind(child)?);
        let fits = holder.is_some_and(NodeKind::is_parent)
            && match held {
                Some(NodeKind::Document | NodeKind::Fragment) | None => false,
                Some(NodeKind::Doctype) => holder == Some(NodeKind::Document),
                Some(NodeKind::Text) => holder != Some(NodeKind::Document),
                Some(_) => true,
            };
        if !fits {
            return Err(ChangeError::Hierarchy { parent, child }.into());
        }
        let mut at = parent;
        for _ in 0..=self.header.nodes.used {
            if at == child {
                return Err(ChangeError::OwnAncestor { parent, child }.into());
            }
            let record = self.linked(at)?;
            // From the contents of a template to the template.
            at = if record.is(NodeKind::Fragment) { record.data } else { record.parent };
            if at == NONE {
                return Ok(());
            }
        }
        Err(DomError::Damaged(Damage::Circle { node: parent }))
    }

    fn unlink(&mut self, id: u32) -> Result<(), DomError> {
        self.header.flags &= !ORDERED;
        let record = self.linked(id)?;
        if record.parent == NONE {
            return Ok(());
        }
        let parent = self.linked(record.parent)?;
        let first = parent.first_child();
        if first == id {
            self.write_node(record.parent, NodeRecord { first: record.next, ..parent })?;
        } else {
            let previous = self.linked(record.previous)?;
            self.write_node(record.previous, NodeRecord { next: record.next, ..previous })?;
        }
        // Whose previous one this was: the next sibling's, or the first child's, for which this was
        // the last.
        let later = if record.next != NONE { record.next } else { first };
        if later != id {
            let next = self.linked(later)?;
            self.write_node(later, NodeRecord { previous: record.previous, ..next })?;
        }
        self.write_node(id, NodeRecord { parent: NONE, next: NONE, previous: NONE, ..record })
    }

    /// Puts a node that is nowhere before `sibling`, or behind all children.
    fn link(&mut self, parent: u32, id: u32, sibling: u32) -> Result<(), DomError> {
        self.header.flags &= !ORDERED;
        let holder = self.linked(parent)?;
        let first = holder.first_child();
        let record = self.linked(id)?;
        if first == NONE {
            self.write_node(parent, NodeRecord { first: id, ..holder })?;
            return self.write_node(id, NodeRecord { parent, previous: id, ..record });
        }
        // Whose previous one changes: that of the sibling, or at the end that of the first child,
        // which is the last.
        let later = if sibling == NONE { first } else { sibling };
        let later_record = self.linked(later)?;
        let previous = later_record.previous;
        self.write_node(later, NodeRecord { previous: id, ..later_record })?;
        if sibling == first {
            self.write_node(parent, NodeRecord { first: id, ..holder })?;
        } else {
            let before = self.linked(previous)?;
            self.write_node(previous, NodeRecord { next: id, ..before })?;
        }
        self.write_node(id, NodeRecord { parent, previous, next: sibling, ..record })
    }

    /// An element, and the name of an attribute as it has it.
    fn attribute_place(&self, node: u32, name: &str) -> Result<(NodeRecord, String), DomError> {
        let record = self.node(node)?;
        if !record.is(NodeKind::Element) {
            return Err(ChangeError::WrongKind { node, wanted: "element" }.into());
        }
        let document = self.document()?;
        let is_html = document
            .name(record.name())
            .is_some_and(|name| name.namespace == Namespace::Html as u8);
        Ok((record, attribute_name(name, is_html)?))
    }

    fn find_attribute(
        &self,
        record: &NodeRecord,
        name: &str,
    ) -> Result<Option<(u32, AttributeRecord)>, DomError> {
        let document = self.document()?;
        let (attributes, wanted) = (document.attributes_of(record), QualifiedName::new(name));
        // The numbers come second: there may be none that is one more.
        let found = attributes.iter().zip(record.data..).find(|(attribute, _)| {
            document.name(attribute.name.into()).is_some_and(|record| wanted.is(&document, record))
        });
        let found = found.map(|(attribute, number)| (number, *attribute));
        document.unless_damaged(found)
    }

    fn attributes(&self, start: u32, end: u32) -> Result<Vec<AttributeRecord>, DomError> {
        let document = self.document()?;
        let attributes = document.attributes().get(start as usize..end as usize);
        attributes
            .map(<[_]>::to_vec)
            .ok_or(DomError::Damaged(Damage::Attribute { attribute: start }))
    }

    /// Gives an element one more attribute: behind its others, which first go where there is room
    /// behind them.
    fn add_attribute(
        &mut self,
        node: u32,
        record: NodeRecord,
        attribute: AttributeRecord,
    ) -> Result<(), DomError> {
        let end = record.data.saturating_add(record.attributes());
        let others = match record.attributes() {
            0 => Vec::new(),
            _ => self.attributes(record.data, end)?,
        };
        let names: Vec<u32> =
            others.iter().chain([&attribute]).map(|one| one.name.into()).collect();
        let mut place = record.data;
        if end != self.header.attributes.used {
            place = self.header.attributes.used;
            for other in others {
                self.push_attribute(other)?;
            }
        }
        self.push_attribute(attribute)?;
        self.write_node(node, NodeRecord { data: place, ..record.with_attributes(names) })
    }
}
