//! The smallest reader of XML that `GraphML` needs: elements, attributes, text.
//!
//! No crate that reads XML is in the tree, and this is one short file: `GraphML` as networkx and igraph
//! write it has no more. It knows comments, processing instructions, CDATA, the five named entities and
//! numeric references; a document type declaration is refused, so that no entity can grow. It is total:
//! any text gives events or one error with its line; depth and attributes of an element are bounded.

use std::borrow::Cow;

use crate::graphs::error::GraphError;

/// Deepest nesting of elements.
const MAX_DEPTH: usize = 32;
/// Most attributes of an element.
const MAX_ATTRIBUTES: usize = 64;

/// One thing in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A start tag. An empty element has an end right behind it.
    Start {
        name: &'a str,
        attributes: Vec<(&'a str, Cow<'a, str>)>,
    },
    /// An end tag; it matches the last start that is open.
    End { name: &'a str },
    /// Text between tags; never only white space.
    Text(Cow<'a, str>),
}

/// A place in a document.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a str,
    line: u32,
    open: Vec<&'a str>,
    /// The end of an empty element, which is a separate event.
    end: Option<&'a str>,
    had_root: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Reader<'a> {
        Reader {
            rest: text.strip_prefix('\u{feff}').unwrap_or(text),
            line: 1,
            open: Vec::new(),
            end: None,
            had_root: false,
        }
    }

    /// The next event with the line where it begins; `None` at the end of a whole document.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Event<'a>)>, GraphError> {
        if let Some(name) = self.end.take() {
            return Ok(Some((self.line, Event::End { name })));
        }
        loop {
            let line = self.line;
            if self.rest.is_empty() {
                return match (self.open.last(), self.had_root) {
                    (Some(name), _) => Err(self.error(format!("<{name}> is not closed"))),
                    (None, false) => Err(self.error("there is no element")),
                    (None, true) => Ok(None),
                };
            }
            if self.take("<!--") {
                self.until("-->", "a comment")?;
            } else if self.take("<![CDATA[") {
                let text = self.until("]]>", "CDATA")?;
                if let Some(text) = self.text(Cow::Borrowed(text))? {
                    return Ok(Some((line, text)));
                }
            } else if self.take("<?") {
                self.until("?>", "a processing instruction")?;
            } else if self.rest.starts_with("<!") {
                return Err(self.error("declarations such as <!DOCTYPE> are not read"));
            } else if self.take("</") {
                let name = self.name()?;
                self.space();
                self.expect(">")?;
                if self.open.pop() != Some(name) {
                    return Err(self.error(format!("</{name}> closes nothing")));
                }
                return Ok(Some((line, Event::End { name })));
            } else if self.take("<") {
                return Ok(Some((line, self.start()?)));
            } else {
                let length = self.rest.find('<').unwrap_or(self.rest.len());
                let raw = self.advance(length);
                let text = self.unescape(raw, line)?;
                if let Some(text) = self.text(text)? {
                    return Ok(Some((line, text)));
                }
            }
        }
    }

    /// Skips to the end of the element whose start was the last event.
    pub(crate) fn skip(&mut self) -> Result<(), GraphError> {
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                Some((_, Event::Start { .. })) => depth += 1,
                Some((_, Event::End { .. })) => depth -= 1,
                Some((_, Event::Text(_))) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Event<'a>, GraphError> {
        if self.open.is_empty() && self.had_root {
            return Err(self.error("a document has one outermost element"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(format!("more than {MAX_DEPTH} elements in each other")));
        }
        let name = self.name()?;
        let mut attributes: Vec<(&str, Cow<'_, str>)> = Vec::new();
        loop {
            let spaced = self.space();
            if self.take("/>") {
                self.end = Some(name);
                break;
            }
            if self.take(">") {
                self.open.push(name);
                break;
            }
            if !spaced {
                return Err(self.error(format!("<{name}> is damaged")));
            }
            let attribute = self.attribute(name)?;
            if attributes.iter().any(|(known, _)| *known == attribute.0) {
                return Err(self.error(format!("<{name}> has {} twice", attribute.0)));
            }
            if attributes.len() >= MAX_ATTRIBUTES {
                return Err(self.error(format!("<{name}> has too many attributes")));
            }
            attributes.push(attribute);
        }
        self.had_root = true;
        Ok(Event::Start { name, attributes })
    }

    fn attribute(&mut self, element: &str) -> Result<(&'a str, Cow<'a, str>), GraphError> {
        let name = self.name()?;
        self.space();
        self.expect("=")?;
        self.space();
        let quote = match self.rest.chars().next() {
            Some('"') => "\"",
            Some('\'') => "'",
            _ => return Err(self.error(format!("{name} of <{element}> has no quoted value"))),
        };
        self.expect(quote)?;
        let line = self.line;
        let raw = self.until(quote, "the value of an attribute")?;
        if raw.contains('<') {
            return Err(GraphError::new(
                line,
                format!("<{element}>"),
                format!("the value of {name} contains \"<\""),
            ));
        }
        Ok((name, self.unescape(raw, line)?))
    }

    fn name(&mut self) -> Result<&'a str, GraphError> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
        let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        if length == 0 {
            return Err(self.error("a name is missing behind \"<\" or in a tag"));
        }
        Ok(self.advance(length))
    }

    /// Text as an event, `None` if it is only white space.
    fn text(&self, text: Cow<'a, str>) -> Result<Option<Event<'a>>, GraphError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        if self.open.is_empty() {
            return Err(self.error("text outside of any element"));
        }
        Ok(Some(Event::Text(text)))
    }

    fn unescape(&self, raw: &'a str, line: u32) -> Result<Cow<'a, str>, GraphError> {
        if !raw.contains('&') {
            return Ok(Cow::Borrowed(raw));
        }
        let wrong = || GraphError::new(line, self.place(), "an unknown reference behind \"&\"");
        let mut text = String::with_capacity(raw.len());
        let mut pieces = raw.split('&');
        text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let (reference, rest) = piece.split_once(';').ok_or_else(wrong)?;
            let c = match reference {
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                "quot" => '"',
                "apos" => '\'',
                _ => numeric(reference).ok_or_else(wrong)?,
            };
            text.push(c);
            text.push_str(rest);
        }
        Ok(Cow::Owned(text))
    }

    /// Skips `token` if the text continues with it, and returns true then.
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), GraphError> {
        if self.take(token) {
            return Ok(());
        }
        Err(self.error(format!("\"{token}\" is missing")))
    }

    /// Returns the text before `token` and skips both.
    fn until(&mut self, token: &str, what: &str) -> Result<&'a str, GraphError> {
        let Some(length) = self.rest.find(token) else {
            return Err(self.error(format!("{what} has no end")));
        };
        let text = self.advance(length);
        self.take(token);
        Ok(text)
    }

    fn space(&mut self) -> bool {
        let is_space = |c: char| c.is_ascii_whitespace();
        let length = self.rest.find(|c| !is_space(c)).unwrap_or(self.rest.len());
        !self.advance(length).is_empty()
    }

    /// Advances by `length` bytes, up to the end of a character, and returns them.
    fn advance(&mut self, length: usize) -> &'a str {
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self
            .line
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
        text
    }

    fn place(&self) -> String {
        self.open
            .last()
            .map_or_else(|| "the document".to_owned(), |name| format!("in <{name}>"))
    }

    fn error(&self, problem: impl Into<String>) -> GraphError {
        GraphError::new(self.line, self.place(), problem)
    }
}

/// `#38` or `#x26`.
fn numeric(reference: &str) -> Option<char> {
    let digits = reference.strip_prefix('#')?;
    let code = match digits.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    char::from_u32(code.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<(u32, Event<'_>)>, GraphError> {
        let mut reader = Reader::new(text);
        let mut events = Vec::new();
        while let Some(event) = reader.next()? {
            events.push(event);
        }
        Ok(events)
    }

    #[test]
    fn elements_attributes_and_text_arrive_in_order_with_their_lines() {
        let text = "<?xml version='1.0'?>\n<!-- a > b -->\n<a one='1' two=\"&lt;&#50;&#x32;\">\n <b/>x &amp; y<![CDATA[<]]></a>\n";
        let attributes = vec![("one", Cow::from("1")), ("two", Cow::from("<22"))];
        assert_eq!(
            all(text).unwrap(),
            [
                (
                    3,
                    Event::Start {
                        name: "a",
                        attributes
                    }
                ),
                (
                    4,
                    Event::Start {
                        name: "b",
                        attributes: Vec::new()
                    }
                ),
                (4, Event::End { name: "b" }),
                (4, Event::Text("x & y".into())),
                (4, Event::Text("<".into())),
                (4, Event::End { name: "a" }),
            ]
        );
    }

    #[test]
    fn damage_is_an_error_with_its_line() {
        let deep = "<a>".repeat(40);
        for (text, line, problem) in [
            ("", 1, "no element"),
            ("<a>\n<b></a>", 2, "closes nothing"),
            ("<a>\n", 2, "not closed"),
            ("<a x=1/>", 1, "no quoted value"),
            ("<a x='1' x='2'/>", 1, "twice"),
            ("<a>&nbsp;</a>", 1, "unknown reference"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", 1, "not read"),
            ("<a/><b/>", 1, "one outermost"),
            ("<a><!--", 1, "has no end"),
            ("text", 1, "outside"),
            (deep.as_str(), 1, "in each other"),
        ] {
            let error = all(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(problem), "{text}: {error}");
        }
    }
}
