//! Breaks a paragraph of the engine's tree into several.

use std::mem;

use blitz_dom::node::NodeFlags;
use blitz_dom::{Attribute, BaseDocument, NodeId};
use style::computed_values::text_wrap_mode::T as Wrap;
use style::data::ElementStyles;
use style::properties::ComputedValues;
use style::selector_parser::PseudoElement;
use style::servo_arc::Arc;
use style::values::specified::box_::DisplayOutside;

use super::changes::{Changes, HTML, anonymous, name_of, pseudo_of, styles_of, with};
use super::{
    Bounds, LongParagraph, NodeRole, ParagraphPart, ParagraphParts, ParagraphReport, collapses,
    keeps_lines, plan, role_of, survey,
};

/// Of a block that has a part of a paragraph and nothing of its own.
const PART_STYLE: &str = "all: unset !important; display: block !important; unicode-bidi: inherit !important; \
     text-decoration: inherit !important; vertical-align: inherit !important";
/// Only the first line of a paragraph is indented.
const LATER_STYLE: &str = "; text-indent: 0 !important";

impl Changes {
    /// Breaks a paragraph.
    pub(super) fn cut(
        &mut self,
        engine: &mut BaseDocument,
        long: &LongParagraph,
        bounds: Bounds,
        parts: &mut ParagraphParts,
    ) {
        let Some(container) = engine.get_node(long.container) else { return };
        let Some(run) = container.children.get(long.children.clone()).map(<[NodeId]>::to_vec)
        else {
            return;
        };
        let all = container.children.to_vec();
        let styles = [PART_STYLE.to_owned(), format!("{PART_STYLE}{LATER_STYLE}")];
        let [Some(first), Some(later)] = self.part_styles(engine, long.container, styles) else {
            return;
        };
        let mut ends = plan::ends(engine, long.container, &run, bounds);
        ends.reverse();
        let mut cutting = Cutter {
            engine,
            changes: self,
            continued: &mut parts.continued,
            bounds,
            container: long.container,
            later,
            levels: Vec::new(),
            ends,
            line: 0,
            styles: 0,
            is_due: false,
            space_due: false,
            ends_in_space: false,
            blocks: Vec::new(),
            torn: 0,
        };
        cutting.begin(first, run);
        cutting.go();
        let Cutter { blocks, torn, .. } = cutting;
        // What the container's style puts before and behind its lines goes with them.
        let ends = [
            (long.children.start == 0, PseudoElement::Before, blocks.first()),
            (long.children.end == all.len(), PseudoElement::After, blocks.last()),
        ];
        let is_all = long.children == (0..all.len());
        for (is_at_end, pseudo, block) in ends {
            if let (true, Some((block, _))) = (is_at_end, block)
                && let Some(style) = pseudo_of(engine, long.container, &pseudo)
                && (is_all || style.clone_display().outside() == DisplayOutside::Inline)
            {
                self.move_pseudo(engine, long.container, *block, &pseudo);
            }
        }
        for (block, has_space_before) in &blocks {
            let part = ParagraphPart {
                paragraph: parts.paragraphs.len(),
                has_space_before: *has_space_before,
            };
            parts.blocks.insert(*block, part);
        }
        parts.paragraphs.push(ParagraphReport { styles: long.styles, parts: blocks.len(), torn });
        let mut children = all;
        children.splice(long.children.clone(), blocks.into_iter().map(|(block, _)| block));
        self.set_children(engine, long.container, children);
        self.damage(engine, long.container);
    }

    /// Styles of elements that would be the last ones in a container. Nothing else is styled for
    /// it.
    fn part_styles(
        &mut self,
        engine: &mut BaseDocument,
        container: NodeId,
        styles: [String; 2],
    ) -> [Option<Arc<ComputedValues>>; 2] {
        let made = styles.map(|value| {
            let style = Attribute { name: name_of("style", ""), value };
            let made = engine.mutate().create_element(name_of("part", HTML), vec![style]);
            with(engine, made, |node| {
                node.parent = Some(container);
                node.flags.insert(NodeFlags::IS_IN_DOCUMENT);
            });
            self.all_damage = engine.get_node(made).and_then(blitz_dom::Node::damage);
            made
        });
        let Some(before) = engine.get_node(container).map(|node| node.children.clone()) else {
            return [None, None];
        };
        with(engine, container, |node| node.children.extend(made));
        with(engine, made[0], |node| node.mark_ancestors_dirty());
        engine.resolve_stylist(0.0);
        with(engine, container, |node| node.children = before);
        made.map(|made| styles_of(engine, made)?.primary)
    }
}

/// An element of the paragraph that is gone through, or the paragraph itself.
struct CutLevel {
    /// As it is in the page.
    origin: NodeId,
    /// What has its children in the part that is being made.
    target: NodeId,
    /// Those of the page, and which is next.
    source: Vec<NodeId>,
    next: usize,
    children: Vec<NodeId>,
    /// Whether it has not all of the children that it has in the page.
    is_cut: bool,
}

struct Cutter<'a> {
    engine: &'a mut BaseDocument,
    changes: &'a mut Changes,
    continued: &'a mut std::collections::HashMap<NodeId, Vec<NodeId>>,
    bounds: Bounds,
    container: NodeId,
    /// The style of blocks behind the first.
    later: Arc<ComputedValues>,
    levels: Vec<CutLevel>,
    /// The ends of lines with which parts end, the next one last, and how many there were.
    ends: Vec<u32>,
    line: u32,
    /// Of the part that is being made.
    styles: u32,
    /// A line ended: the next thing is in another part.
    is_due: bool,
    /// White space went with the end of the part.
    space_due: bool,
    /// The last text ends in white space that goes if it is the last of the part.
    ends_in_space: bool,
    /// Each with whether there was white space before it that is gone.
    blocks: Vec<(NodeId, bool)>,
    torn: usize,
}

impl Cutter<'_> {
    fn begin(&mut self, style: Arc<ComputedValues>, source: Vec<NodeId>) {
        let block = anonymous(
            self.engine,
            self.container,
            "div",
            ElementStyles { primary: Some(style), ..ElementStyles::default() },
        );
        self.blocks.push((block, false));
        self.levels.push(CutLevel {
            origin: self.container,
            target: block,
            source,
            next: 0,
            children: Vec::new(),
            is_cut: true,
        });
    }

    fn go(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            let Some(child) = level.source.get(level.next).copied() else {
                self.leave();
                continue;
            };
            level.next += 1;
            let Some(node) = self.engine.get_node(child) else { continue };
            let role = role_of(node);
            if role != NodeRole::Nothing {
                if !self.is_due && role != NodeRole::Text && self.styles >= self.bounds.element {
                    self.tear(self.ends_in_space);
                }
                self.cut_if_due();
            }
            match role {
                NodeRole::Text => self.text(child),
                NodeRole::Inline | NodeRole::Contents => self.enter(child),
                NodeRole::LineBreak => {
                    self.keep(child);
                    self.styles += 1;
                    self.is_due = self.ends_line();
                }
                NodeRole::Atomic | NodeRole::Block | NodeRole::Nothing => self.keep(child),
            }
        }
    }

    fn tear(&mut self, has_space: bool) {
        self.is_due = true;
        self.space_due = has_space;
        self.torn += 1;
    }

    fn keep(&mut self, child: NodeId) {
        if let Some(level) = self.levels.last_mut() {
            level.children.push(child);
        }
    }

    fn enter(&mut self, element: NodeId) {
        let Some(node) = self.engine.get_node(element) else { return };
        let source = node.children.to_vec();
        self.styles += survey::styles_of(node);
        let level = CutLevel {
            origin: element,
            target: element,
            source,
            next: 0,
            children: Vec::new(),
            is_cut: false,
        };
        self.levels.push(level);
    }

    /// All children of an element are done.
    fn leave(&mut self) {
        let Some(origin) = self.levels.last().map(|level| level.origin) else { return };
        if self.levels.len() > 1
            && pseudo_of(self.engine, self.target_of(origin), &PseudoElement::After).is_some()
        {
            self.cut_if_due();
        }
        let Some(level) = self.levels.pop() else { return };
        if level.is_cut {
            self.changes.adopt(self.engine, level.target, level.children);
        }
        self.keep(level.target);
    }

    fn target_of(&self, origin: NodeId) -> NodeId {
        self.levels.last().map_or(origin, |level| level.target)
    }

    fn cut_if_due(&mut self) {
        if self.is_due {
            self.cut();
        }
    }

    /// Ends a part here, and begins another one in which the same elements are open.
    fn cut(&mut self) {
        self.is_due = false;
        let has_space = mem::take(&mut self.space_due);
        for number in (1..self.levels.len()).rev() {
            let level = &mut self.levels[number];
            level.is_cut = true;
            let (target, children) = (level.target, mem::take(&mut level.children));
            self.changes.adopt(self.engine, target, children);
            self.levels[number - 1].children.push(target);
        }
        let ended = mem::take(&mut self.levels[0].children);
        self.changes.adopt(self.engine, self.levels[0].target, ended);
        let style = ElementStyles { primary: Some(self.later.clone()), ..ElementStyles::default() };
        let block = anonymous(self.engine, self.container, "div", style);
        self.blocks.push((block, has_space));
        self.levels[0].target = block;
        self.styles = 0;
        for number in 1..self.levels.len() {
            let (origin, before) = (self.levels[number].origin, self.levels[number].target);
            let next = self.next_of(origin, before, self.levels[number - 1].target);
            self.levels[number].target = next;
            if let Some(node) = self.engine.get_node(origin) {
                self.styles += survey::styles_of(node);
            }
        }
    }

    /// What has the children of an element in the next part.
    fn next_of(&mut self, origin: NodeId, before: NodeId, parent: NodeId) -> NodeId {
        let styles = styles_of(self.engine, origin).unwrap_or_default();
        let name = self
            .engine
            .get_node(origin)
            .and_then(|node| Some(node.element_data()?.name.local.clone()));
        let styles = ElementStyles { primary: styles.primary, ..ElementStyles::default() };
        let next = anonymous(self.engine, parent, name.as_deref().unwrap_or("span"), styles);
        self.changes.move_pseudo(self.engine, before, next, &PseudoElement::After);
        self.continued.entry(origin).or_default().push(next);
        next
    }

    fn text(&mut self, id: NodeId) {
        let Some(content) = self.engine.get_node(id).and_then(|node| node.text_data()) else {
            return;
        };
        let Some(around) = self.levels.last().map(|level| level.origin) else { return };
        let Some(style) = styles_of(self.engine, around).and_then(|styles| styles.primary) else {
            return;
        };
        let content = content.content.clone();
        self.ends_in_space =
            collapses(&style) && content.ends_with(|one: char| one.is_ascii_whitespace());
        let mut rest = content.as_str();
        let mut is_first = true;
        while let Some((at, is_end)) = self.place_in(rest, &style) {
            if is_end {
                self.is_due = true;
            } else {
                self.tear(collapses(&style));
            }
            let (part, behind) = rest.split_at(at);
            if behind.is_empty() {
                break;
            }
            self.keep_text(id, part, mem::take(&mut is_first));
            self.cut();
            rest = behind;
        }
        if is_first {
            self.keep(id);
        } else {
            self.keep_text(id, rest, false);
        }
    }

    /// Whether a part ends with the line that ends here.
    fn ends_line(&mut self) -> bool {
        self.line += 1;
        self.ends.pop_if(|end| *end == self.line).is_some()
    }

    fn keep_text(&mut self, id: NodeId, content: &str, is_first: bool) {
        if is_first {
            self.changes.set_text(self.engine, id, content);
            return self.keep(id);
        }
        let made = self.engine.create_text_node(content);
        with(self.engine, made, |node| node.flags.insert(NodeFlags::IS_IN_DOCUMENT));
        self.keep(made);
    }

    /// Behind what of a text a part ends, and whether a line ends there anyhow.
    fn place_in(&mut self, text: &str, style: &ComputedValues) -> Option<(usize, bool)> {
        if self.styles >= self.bounds.word && style.clone_text_wrap_mode() == Wrap::Wrap {
            let at = text.find([' ', '\n', '\t'])?;
            let is_end = text[at..].starts_with('\n') && keeps_lines(style);
            if is_end {
                // It may be one that was planned.
                self.ends_line();
            }
            return Some((at + 1, is_end));
        }
        let mut ends = text.match_indices('\n').filter(|_| keeps_lines(style));
        ends.find(|_| self.ends_line()).map(|(at, _)| (at + 1, true))
    }
}
