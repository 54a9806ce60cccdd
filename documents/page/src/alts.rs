//! Alternative text for images that are absent: the engine shows nothing of them, and a page says
//! what they would show.

use blitz_dom::node::ImageData;
use blitz_dom::{Attribute, BaseDocument, LocalName, Namespace as Url, NodeId, QualName};
use holdfast_dom::{Document, Namespace, Node};

use crate::forms::MARK;
use crate::tree::Pair;

/// What the text takes of its image, beside its place.
const TAKEN: [&str; 5] = ["class", "style", "lang", "dir", "hidden"];

/// Puts the text of each image that is not there in its place. What was loaded has been handed to
/// the engine.
pub(crate) fn show(engine: &mut BaseDocument, document: &Document<'_>, pairs: &mut [Pair]) {
    for (number, id) in pairs {
        let Some(node) = document.node(*number) else { continue };
        let Some(text) = text_of(node) else { continue };
        if !is_missing(engine, *id) {
            continue;
        }
        let mut tree = engine.mutate();
        let name = |name: &str| QualName::new(None, Url::default(), LocalName::from(name));
        let taken = TAKEN.iter().filter_map(|kind| {
            let value = node.attribute(kind)?.to_owned();
            Some(Attribute { name: name(kind), value })
        });
        let mark = Attribute { name: name(MARK), value: "alt".to_owned() };
        let span = QualName::new(None, Url::from(Namespace::Html.url()), LocalName::from("span"));
        let made = tree.create_element(span, taken.chain([mark]).collect());
        let text = tree.create_text_node(text);
        tree.append_children(made, &[text]);
        tree.replace_node_with(*id, &[made]);
        *id = made;
    }
}

fn text_of<'d>(node: Node<'d>) -> Option<&'d str> {
    let is_image = node.name() == Some("img") && node.namespace() == Some(Namespace::Html);
    let text = node.attribute("alt").filter(|_| is_image)?.trim();
    (!text.is_empty()).then_some(text)
}

fn is_missing(engine: &BaseDocument, id: NodeId) -> bool {
    let Some(node) = engine.get_node(id) else { return false };
    let is_in_page = node.parent.is_some();
    let image = node.element_data().and_then(|element| element.image_data());
    is_in_page && matches!(image, None | Some(ImageData::None))
}
