//! The letters of a page: which encoding its bytes are in, as browsers find it (HTML, 13.2.3), and
//! the page in UTF-8.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

const BYTE_ORDER_MARK: char = '\u{feff}';
/// Bytes that are looked at for a declaration.
const PRESCAN_BYTES: usize = 1024;

/// The encoding of a page: what its first bytes say, or else its server, or else the page. Nothing
/// said is UTF-8. To XML a `<meta>` says nothing.
pub(crate) fn encoding_of(
    bytes: &[u8],
    content_type: Option<&str>,
    is_xhtml: bool,
) -> &'static Encoding {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return encoding;
    }
    let said = said_encoding(content_type);
    let first = &bytes[..bytes.len().min(PRESCAN_BYTES)];
    let of_meta = || if is_xhtml { None } else { declared(first) };
    said.or_else(of_meta).or_else(|| declared_as_xml(first)).unwrap_or(UTF_8)
}

/// The page in UTF-8.
pub(crate) fn decoded<'a>(bytes: &'a [u8], encoding: &'static Encoding) -> Cow<'a, [u8]> {
    if encoding == UTF_8 {
        // The parser replaces what is wrong itself.
        return Cow::Borrowed(bytes);
    }
    let text = encoding.decode_with_bom_removal(bytes).0;
    if text.starts_with(BYTE_ORDER_MARK) {
        // A character of the page: the parser takes the first mark for that of the encoding, which
        // is gone.
        return Cow::Owned(format!("{BYTE_ORDER_MARK}{text}").into_bytes());
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A style sheet that is not in UTF-8 (CSS Syntax, 3.2): the encoding is that of its first bytes,
/// or its server says it, or it does; or else it is that of the page.
pub(crate) fn style_in_utf_8(
    bytes: &[u8],
    content_type: Option<&str>,
    of_page: &'static Encoding,
) -> Vec<u8> {
    let declared = || {
        let rest = bytes.strip_prefix(b"@charset \"")?;
        let end = rest.iter().take(PRESCAN_BYTES).position(|byte| *byte == b'"')?;
        Encoding::for_label(&rest[..end]).map(readable_as_it_stands)
    };
    let of_first = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let said = || said_encoding(content_type);
    let encoding = of_first.or_else(said).or_else(declared);
    let encoding = encoding.unwrap_or_else(|| readable_as_it_stands(of_page));
    encoding.decode(bytes).0.into_owned().into_bytes()
}

/// The encoding that a server says.
pub(crate) fn said_encoding(content_type: Option<&str>) -> Option<&'static Encoding> {
    content_type.and_then(|said| label_after(said.as_bytes())).and_then(Encoding::for_label)
}

/// What `charset=` is followed by.
fn label_after(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        let at = rest.windows(7).position(|window| window.eq_ignore_ascii_case(b"charset"))?;
        rest = rest[at + 7..].trim_ascii_start();
        let Some(after) = rest.strip_prefix(b"=") else { continue };
        let value = after.trim_ascii_start();
        return match value.first()? {
            quote @ (b'"' | b'\'') => {
                let end = value[1..].iter().position(|byte| byte == quote)?;
                Some(&value[1..=end])
            }
            _ => {
                let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';';
                Some(&value[..value.iter().position(is_end).unwrap_or(value.len())])
            }
        };
    }
}

/// What a `<meta>` declares.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let begins_tag =
            |rest: &[u8], after: usize| rest.get(after).is_some_and(u8::is_ascii_alphabetic);
        if let Some(comment) = rest.strip_prefix(b"<!--") {
            // The two signs of its beginning may be those of its end.
            let end = rest[2..].windows(3).position(|window| window == b"-->");
            rest = end.map_or(&comment[comment.len()..], |end| &rest[end + 5..]);
        } else if rest.first() == Some(&b'<')
            && (begins_tag(rest, 1) || rest.get(1) == Some(&b'/') && begins_tag(rest, 2))
        {
            let is_meta = rest.len() > 5
                && rest[..5].eq_ignore_ascii_case(b"<meta")
                && (rest[5].is_ascii_whitespace() || rest[5] == b'/');
            let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>');
            let after = if is_meta { 5 } else { end.unwrap_or(rest.len()) };
            let mut attributes = Attributes { rest: &rest[after..] };
            if !is_meta {
                attributes.by_ref().for_each(drop);
            } else if let Some(encoding) = of_meta(&mut attributes) {
                return Some(encoding);
            }
            rest = attributes.rest;
        } else if rest.starts_with(b"<!") || rest.starts_with(b"</") || rest.starts_with(b"<?") {
            let end = rest.iter().position(|byte| *byte == b'>');
            rest = end.map_or(&[], |end| &rest[end + 1..]);
        } else {
            rest = &rest[1..];
        }
    }
    None
}

/// What an XML declaration says, which pages in XHTML begin with; it must be written as XML is.
fn declared_as_xml(bytes: &[u8]) -> Option<&'static Encoding> {
    const NAME: &[u8] = b"encoding";
    let is_space = |byte: &u8| *byte <= b' ';
    let behind_space =
        |text: &[u8]| text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let rest = bytes.strip_prefix(b"<?xml")?;
    let declaration = &rest[..rest.iter().position(|byte| *byte == b'>')?];
    let at = declaration.windows(NAME.len()).position(|window| window == NAME)?;
    let rest = &declaration[at + NAME.len()..];
    let rest = rest[behind_space(rest)..].strip_prefix(b"=")?;
    let (quote, value) = rest[behind_space(rest)..].split_first()?;
    if !matches!(quote, b'"' | b'\'') {
        return None;
    }
    let label = &value[..value.iter().position(|byte| byte == quote)?];
    if label.iter().any(is_space) {
        return None;
    }
    Encoding::for_label(label).map(readable_as_it_stands)
}

/// A page whose declaration can be read as it stands is not in two bytes a letter.
fn readable_as_it_stands(encoding: &'static Encoding) -> &'static Encoding {
    if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding }
}

fn of_meta(attributes: &mut Attributes<'_>) -> Option<&'static Encoding> {
    let (mut is_pragma, mut label, mut needs_pragma) = (false, None, false);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for (name, value) in attributes {
        if seen.contains(&name) {
            continue;
        }
        match name.as_slice() {
            b"http-equiv" => is_pragma |= value.eq_ignore_ascii_case(b"content-type"),
            b"content" if label.is_none() => {
                if let Some(found) = label_after(&value).and_then(Encoding::for_label) {
                    (label, needs_pragma) = (Some(found), true);
                }
            }
            b"charset" => (label, needs_pragma) = (Encoding::for_label(&value), false),
            _ => {}
        }
        seen.push(name);
    }
    let encoding = label.filter(|_| !needs_pragma || is_pragma)?;
    Some(match readable_as_it_stands(encoding) {
        encoding if encoding == X_USER_DEFINED => WINDOWS_1252,
        encoding => encoding,
    })
}

/// The attributes of a tag: names in small letters, and values.
struct Attributes<'a> {
    rest: &'a [u8],
}

impl Iterator for Attributes<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let skip = |rest: &[u8], of: fn(&u8) -> bool| {
            rest.iter().position(|byte| !of(byte)).unwrap_or(rest.len())
        };
        self.rest =
            &self.rest[skip(self.rest, |byte| byte.is_ascii_whitespace() || *byte == b'/')..];
        match self.rest.first() {
            None => return None,
            Some(b'>') => {
                self.rest = &self.rest[1..];
                return None;
            }
            Some(_) => {}
        }
        let ends_name = |byte: &u8| !(byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'));
        // A sign of equality that comes first is part of the name.
        let length = 1 + skip(&self.rest[1..], |byte| {
            !(byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'='))
        });
        let (name, after) = self.rest.split_at(length);
        let after = &after[skip(after, u8::is_ascii_whitespace)..];
        let name = name.to_ascii_lowercase();
        let Some(value) = after.strip_prefix(b"=") else {
            self.rest = after;
            return Some((name, Vec::new()));
        };
        let value = &value[skip(value, u8::is_ascii_whitespace)..];
        let (value, rest) = match value.first() {
            Some(quote @ (b'"' | b'\'')) => {
                let inner = &value[1..];
                let Some(end) = inner.iter().position(|byte| byte == quote) else {
                    self.rest = &[];
                    return None;
                };
                (&inner[..end], &inner[end + 1..])
            }
            _ => value.split_at(
                value
                    .iter()
                    .position(|byte| !ends_name(byte) && *byte != b'/')
                    .unwrap_or(value.len()),
            ),
        };
        self.rest = rest;
        Some((name, value.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One mark belongs to the encoding; the parser takes away one more, so a second one is
    /// doubled.
    ///
    /// Guarantee: documents/encodings
    #[test]
    fn a_second_byte_order_mark_is_a_character() {
        let text_of = |bytes: &[u8], said: Option<&str>| {
            let source = decoded(bytes, encoding_of(bytes, said, false)).into_owned();
            let page = holdfast_dom::LoosePage::parse(&source[..], &Default::default()).unwrap();
            page.open().unwrap().root().text().unwrap()
        };
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let long = "a".repeat(16_384 - 3);
        for (bytes, said, text) in [
            (wide("\u{feff}x"), None, "x".to_owned()),
            (wide("\u{feff}\u{feff}x"), None, "\u{feff}x".to_owned()),
            (wide(&format!("\u{feff}<p>{long}\u{feff}z")), None, format!("{long}\u{feff}z")),
            ("\u{feff}\u{feff}x".into(), Some("text/html; charset=koi8-r"), "\u{feff}x".to_owned()),
            (
                b"\x84\x31\x95\x33x".to_vec(),
                Some("text/html; charset=gb18030"),
                "\u{feff}x".to_owned(),
            ),
            (b"\xd0".to_vec(), Some("text/html; charset=koi8-r"), "\u{43f}".to_owned()),
        ] {
            assert!(text_of(&bytes, said) == text, "{:?} {said:?}", &bytes[..bytes.len().min(12)]);
        }
    }

    /// The encoding is that of the byte order mark, else of the server, else of the page.
    ///
    /// Guarantee: pages/encodings
    #[test]
    fn encoding_follows_bom_then_server_then_page() {
        let of = |bytes: &[u8], said: Option<&str>| encoding_of(bytes, said, false).name();
        assert_eq!(of(b"<p>", None), "UTF-8");
        assert_eq!(of(b"\xff\xfea\0", Some("text/html; charset=koi8-r")), "UTF-16LE");
        assert_eq!(
            of(b"\xef\xbb\xbf<meta charset=koi8-r>", Some("text/html; charset=koi8-r")),
            "UTF-8"
        );
        assert_eq!(
            of(b"<meta charset=utf-8>", Some("text/html; Charset=\"ISO-8859-1\"")),
            "windows-1252"
        );
        assert_eq!(of(b"<meta charset=koi8-r>", Some("text/html; charset=no-such")), "KOI8-R");
        for declared in [
            "<!doctype html><META Charset='Shift_JIS'>",
            "<meta http-equiv=Content-Type content='text/html; charset = shift_jis'>",
            "<meta content='text/html;charset=shift_jis' HTTP-EQUIV=\"content-type\"/>",
            "<a title='<meta charset=koi8-r>'><!-- <meta charset=koi8-r> --><!--><meta/charset=shift_jis>",
            "<?x <y?><p/><br class = a/><meta name=a charset = 'shift_jis' charset=koi8-r>",
        ] {
            assert_eq!(of(declared.as_bytes(), None), "Shift_JIS", "{declared}");
        }
        for declared in [
            "<?xml version='1.0' encoding='shift_jis'?><html>",
            "<?xml version=\"1.0\"\nencoding = \"Shift_JIS\" standalone='yes'?>",
            "<?xml encoding='koi8-r'?><meta charset=shift_jis>",
        ] {
            assert_eq!(of(declared.as_bytes(), None), "Shift_JIS", "{declared}");
        }
        for (xhtml, name) in [
            ("<?xml encoding='shift_jis'?><meta charset='koi8-r'/>", "Shift_JIS"),
            ("<?xml version='1.0'?><meta charset='koi8-r'/>", "UTF-8"),
            ("<meta charset='koi8-r'/>", "UTF-8"),
        ] {
            assert_eq!(encoding_of(xhtml.as_bytes(), None, true).name(), name, "{xhtml}");
        }
        for nothing in [
            " <?xml version='1.0' encoding='koi8-r'?>",
            "<?xml version='1.0' encoding='koi8-r'",
            "<?xml version='1.0' encoding=koi8-r?>",
            "<?xml version='1.0' encoding='koi8-r?>",
            "<?xml version='1.0' encoding='koi8-r '?>",
            "<?xml version='1.0' encoding='utf-16'?>",
            "<?xml version='1.0' encoding='no-such'?>",
            "<?xml encoding",
            "<?xml encoding=?>",
            "<?xml encoding='?>",
            "<meta content='text/html; charset=koi8-r'>",
            "<meta charset=no-such>",
            "<metax charset=koi8-r>",
            "<!-- <meta charset=koi8-r>",
            "<meta charset=utf-16>",
            "<meta charset='koi8-r",
            "<",
            "</",
            "<meta",
            "<meta ",
            "<meta c",
            "<meta c=",
            "<meta =",
            "<meta charset",
            "<meta charset=",
        ] {
            assert_eq!(of(nothing.as_bytes(), None), "UTF-8", "{nothing}");
        }
        let late = format!("{:1024}<meta charset=koi8-r>", "");
        assert_eq!(of(late.as_bytes(), None), "UTF-8", "only the first bytes are looked at");
        assert_eq!(
            &*decoded(b"\xd0\xd2", encoding_of(b"", Some("x; charset=koi8-r"), false)),
            "пр".as_bytes()
        );
        assert_eq!(&*decoded(b"\xff\xfea\0", UTF_16LE), b"a");
        assert_eq!(
            style_in_utf_8(b"@charset \"koi8-r\"; \xd0", None, WINDOWS_1252),
            "@charset \"koi8-r\"; \u{43f}".as_bytes()
        );
        let style = |bytes: &[u8], said: Option<&str>, of_page| {
            String::from_utf8(style_in_utf_8(bytes, said, of_page)).unwrap()
        };
        assert_eq!(style(b"\xd0", Some("text/css; charset=koi8-r"), WINDOWS_1252), "\u{43f}");
        assert_eq!(style(b"\xd0", Some("text/css"), encoding_rs::KOI8_R), "\u{43f}");
        assert_eq!(style(b"a\xff", None, UTF_8), "a\u{fffd}", "the rest of it counts");
        assert_eq!(style(b"a\xff", None, UTF_16BE), "a\u{fffd}");
        let wide = b"@charset \"utf-16\"; \xff";
        assert_eq!(style(wide, None, WINDOWS_1252), "@charset \"utf-16\"; \u{fffd}");
    }
}
