//! The error messages of Go's JSON decoder (`encoding/json`) for a text that is not JSON.

/// The end of reading.
enum Fault {
    /// The text ends too early.
    End,
    /// An unexpected byte.
    At(u8, String),
}

/// Go's message; `None` where Go would accept the text.
pub(super) fn complaint(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0, open: Vec::new() };
    match scanner.document() {
        Ok(()) => None,
        Err(Fault::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Fault::At(byte, context)) => Some(format!("invalid character {} {context}", quoted(byte))),
    }
}

/// A byte as Go prints it: as the character of that code, in single quotes.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        7 => r"'\a'".to_owned(),
        8 => r"'\b'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        11 => r"'\v'".to_owned(),
        12 => r"'\f'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        0..0x20 | 0x7f => format!(r"'\x{byte:02x}'"),
        // Control characters and the soft hyphen.
        0x80..=0xa0 | 0xad => format!(r"'\u{byte:04x}'"),
        byte => format!("'{}'", char::from(byte)),
    }
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    /// The open lists and maps, by their bracket.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn solid(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn fault<T>(&self, context: &str) -> Result<T, Fault> {
        Err(self.peek().map_or(Fault::End, |byte| Fault::At(byte, context.to_owned())))
    }

    fn expect(&mut self, is_good: impl Fn(u8) -> bool, context: &str) -> Result<(), Fault> {
        match self.peek() {
            Some(byte) if is_good(byte) => {
                self.at += 1;
                Ok(())
            }
            _ => self.fault(context),
        }
    }

    fn document(&mut self) -> Result<(), Fault> {
        loop {
            let is_whole = self.value()?;
            if is_whole && self.after_values()? {
                return Ok(());
            }
        }
    }

    /// Reads a value or its opening bracket: false where its first element comes next.
    fn value(&mut self) -> Result<bool, Fault> {
        match self.solid() {
            Some(b'{') => {
                self.at += 1;
                if self.solid() == Some(b'}') {
                    self.at += 1;
                    return Ok(true);
                }
                self.open.push(b'{');
                self.key().map(|()| false)
            }
            Some(b'[') => {
                self.at += 1;
                if self.solid() == Some(b']') {
                    self.at += 1;
                    return Ok(true);
                }
                self.open.push(b'[');
                Ok(false)
            }
            Some(b'"') => self.string().map(|()| true),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| true),
            Some(b't') => self.literal("true").map(|()| true),
            Some(b'f') => self.literal("false").map(|()| true),
            Some(b'n') => self.literal("null").map(|()| true),
            _ => self.fault("looking for beginning of value"),
        }
    }

    /// Reads from the end of a value to the next one: true at the end of the text.
    fn after_values(&mut self) -> Result<bool, Fault> {
        loop {
            let next = self.solid();
            match (self.open.last(), next) {
                (None, None) => return Ok(true),
                (None, Some(_)) => return self.fault("after top-level value"),
                (Some(b'['), Some(b',')) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some(b'['), Some(b']')) | (Some(b'{'), Some(b'}')) => {
                    self.at += 1;
                    self.open.pop();
                }
                (Some(b'['), _) => return self.fault("after array element"),
                (Some(_), Some(b',')) => {
                    self.at += 1;
                    return self.key().map(|()| false);
                }
                (Some(_), _) => return self.fault("after object key:value pair"),
            }
        }
    }

    fn key(&mut self) -> Result<(), Fault> {
        if self.solid() != Some(b'"') {
            return self.fault("looking for beginning of object key string");
        }
        self.string()?;
        self.solid();
        self.expect(|byte| byte == b':', "after object key")
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let is_unicode = self.peek() == Some(b'u');
                    self.expect(|byte| br#"bfnrt\/"u"#.contains(&byte), "in string escape code")?;
                    for _ in 0..if is_unicode { 4 } else { 0 } {
                        self.expect(|byte| byte.is_ascii_hexdigit(), r"in \u hexadecimal character escape")?;
                    }
                }
                None | Some(0..0x20) => return self.fault("in string literal"),
                Some(_) => self.at += 1,
            }
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let is_zero = self.peek() == Some(b'0');
        self.expect(|byte| byte.is_ascii_digit(), "in numeric literal")?;
        if !is_zero {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.expect(|byte| byte.is_ascii_digit(), "after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.expect(|byte| byte.is_ascii_digit(), "in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        for wanted in word.bytes() {
            self.expect(|byte| byte == wanted, &format!("in literal {word} (expecting {})", quoted(wanted)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn complaints_are_gos() {
        const END: &str = "unexpected end of JSON input";
        for (text, wanted) in [
            ("", END),
            ("{\"a\":", END),
            ("[1,", END),
            ("\"a", END),
            ("tru", END),
            ("-", END),
            ("a", "invalid character 'a' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":[1 2]}", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("[nul]", "invalid character ']' in literal null (expecting 'l')"),
            ("[tRue]", "invalid character 'R' in literal true (expecting 'r')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
            ("\u{1}", "invalid character '\\x01' looking for beginning of value"),
        ] {
            assert_eq!(complaint(text.as_bytes()).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(complaint(b"\xff").as_deref(), Some("invalid character 'ÿ' looking for beginning of value"));
        for good in ["{}", " [ ] ", "{\"a\":[1,-0.5e+3,\"\\u00e4\\n\",true,false,null,{}]}\n", "0"] {
            assert_eq!(complaint(good.as_bytes()), None, "{good}");
        }
        let deep = "[".repeat(1 << 20);
        assert_eq!(complaint(deep.as_bytes()).as_deref(), Some(END), "at the cost of a byte a bracket");
    }
}
