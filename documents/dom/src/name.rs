//! Names that changes give to elements and attributes: none that a parser would read as something
//! else.

use crate::error::ChangeError;

/// A name that an element can have; in lower case, if it is of HTML.
pub(crate) fn element_name(name: &str, lower: bool) -> Result<String, ChangeError> {
    // To a parser `<` before anything else is text, a comment or an end tag.
    if !name.starts_with(|first: char| first.is_ascii_alphabetic() || !first.is_ascii()) {
        return Err(ChangeError::BadName);
    }
    attribute_name(name, lower)
}

/// A name that an attribute can have; in lower case, if its element is of HTML.
pub(crate) fn attribute_name(name: &str, lower: bool) -> Result<String, ChangeError> {
    let bad = |c: char| c.is_whitespace() || matches!(c, '/' | '=' | '>' | '<' | '"' | '\'' | '\0');
    if name.is_empty() || name.contains(bad) {
        return Err(ChangeError::BadName);
    }
    Ok(if lower { name.to_ascii_lowercase() } else { name.to_owned() })
}
