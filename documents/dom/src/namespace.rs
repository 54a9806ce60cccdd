//! The namespaces that an HTML document has.

use html5ever::{Namespace as Url, ns};

/// A namespace; stored as its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Namespace {
    /// None: most attributes.
    #[default]
    None = 0,
    /// HTML.
    Html = 1,
    /// MathML.
    MathMl = 2,
    /// SVG.
    Svg = 3,
    /// XLink: attributes.
    XLink = 4,
    /// XML: attributes.
    Xml = 5,
    /// XMLNS: attributes.
    Xmlns = 6,
}

impl Namespace {
    /// Parses a stored number.
    #[must_use]
    pub fn parse(number: u8) -> Option<Namespace> {
        Some(match number {
            0 => Namespace::None,
            1 => Namespace::Html,
            2 => Namespace::MathMl,
            3 => Namespace::Svg,
            4 => Namespace::XLink,
            5 => Namespace::Xml,
            6 => Namespace::Xmlns,
            _ => return None,
        })
    }

    /// Its address; empty for none.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Namespace::None => "",
            Namespace::Html => "http://www.w3.org/1999/xhtml",
            Namespace::MathMl => "http://www.w3.org/1998/Math/MathML",
            Namespace::Svg => "http://www.w3.org/2000/svg",
            Namespace::XLink => "http://www.w3.org/1999/xlink",
            Namespace::Xml => "http://www.w3.org/XML/1998/namespace",
            Namespace::Xmlns => "http://www.w3.org/2000/xmlns/",
        }
    }

    /// The namespace of a parser's address; the parser knows no others.
    pub(crate) fn of(url: &Url) -> Namespace {
        match *url {
            ns!(html) => Namespace::Html,
            ns!(mathml) => Namespace::MathMl,
            ns!(svg) => Namespace::Svg,
            ns!(xlink) => Namespace::XLink,
            ns!(xml) => Namespace::Xml,
            ns!(xmlns) => Namespace::Xmlns,
            _ => Namespace::None,
        }
    }

    /// As the parser has it.
    pub(crate) fn to_url(self) -> Url {
        match self {
            Namespace::None => ns!(),
            Namespace::Html => ns!(html),
            Namespace::MathMl => ns!(mathml),
            Namespace::Svg => ns!(svg),
            Namespace::XLink => ns!(xlink),
            Namespace::Xml => ns!(xml),
            Namespace::Xmlns => ns!(xmlns),
        }
    }
}
