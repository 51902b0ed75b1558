//! JSON text into messages, in one pass and without a tree of either.
//!
//! What JSON omits is omitted; what it has is written, zeros too. Fields that the table does not have are omitted, as upstream
//! omits `kind` and `apiVersion`, which are in the envelope.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;

use super::special::{self, Special};
use super::table::{Field, Kind, Message, Shape};
use super::write;

/// Appends the message that is a whole object.
pub(super) fn object(message: &'static Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Fields { message, out }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The fields of a message: a JSON object or, of a message that is a list, a JSON array.
struct Fields<'o> {
    message: &'static Message,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fields of {}", self.message.id)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inlined = Vec::new();
        while let Some(found) = map.next_key_seed(Name(self.message))? {
            let Some((through, field)) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(Slot { field, out: Inlined::buffer(&mut inlined, self.out, &through) })?;
        }
        Inlined::write(inlined, self.out);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        match self.message.list() {
            Some(field) => Slot { field, out: self.out }.visit_seq(list),
            None => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }
}

/// A name in JSON: the field, and the inlined messages that lead to it.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<(Vec<&'static Field>, &'static Field)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<(Vec<&'static Field>, &'static Field)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name))
    }
}

/// An inlined message while its fields arrive, mixed with its parent's and in any order.
struct Inlined {
    tag: u32,
    own: Vec<u8>,
    inner: Vec<Inlined>,
}

impl Inlined {
    /// The position of a field that these lead to.
    fn buffer<'a>(all: &'a mut Vec<Self>, own: &'a mut Vec<u8>, through: &[&Field]) -> &'a mut Vec<u8> {
        let Some((outer, rest)) = through.split_first() else { return own };
        let at = all.iter().position(|inlined| inlined.tag == outer.tag).unwrap_or_else(|| {
            all.push(Self { tag: outer.tag, own: Vec::new(), inner: Vec::new() });
            all.len() - 1
        });
        match all.get_mut(at) {
            Some(inlined) => Self::buffer(&mut inlined.inner, &mut inlined.own, rest),
            None => own,
        }
    }

    fn write(all: Vec<Self>, out: &mut Vec<u8>) {
        for mut inlined in all {
            Self::write(inlined.inner, &mut inlined.own);
            write::bytes(out, inlined.tag, &inlined.own);
        }
    }
}

/// A field's value, of whatever shape the field has.
struct Slot<'o> {
    field: &'static Field,
    out: &'o mut Vec<u8>,
}

impl Slot<'_> {
    fn one(&mut self) -> One<'_> {
        One { field: self.field, tag: self.field.tag, is_element: true, out: self.out }
    }
}

impl<'de> DeserializeSeed<'de> for Slot<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.shape {
            Shape::One => One { field: self.field, tag: self.field.tag, is_element: false, out: self.out }.deserialize(deserializer),
            Shape::List | Shape::Map => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Slot<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.field.shape == Shape::List { "list" } else { "map" };
        write!(f, "the {shape} {}", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        if self.field.shape != Shape::List {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        while list.next_element_seed(self.one())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { field, out } = self;
        if field.shape != Shape::Map {
            return Err(A::Error::invalid_type(Unexpected::Map, &Self { field, out }));
        }
        while let Some(key) = map.next_key::<String>()? {
            write::nested(out, field.tag, |out| {
                write::bytes(out, 1, key.as_bytes());
                map.next_value_seed(One { field, tag: 2, is_element: true, out })
            })?;
        }
        Ok(())
    }
}

/// One value of a field's type, under a tag.
struct One<'o> {
    field: &'static Field,
    tag: u32,
    /// In a list or map, where even an empty value is an element.
    is_element: bool,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.kind {
            Kind::Special(Special::Json) => {
                let raw = <&RawValue>::deserialize(deserializer)?.get();
                self.json(raw);
                Ok(())
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl One<'_> {
    fn json(self, raw: &str) {
        if raw != "null" || self.is_element {
            let mut inner = Vec::with_capacity(raw.len() + 4);
            write::bytes(&mut inner, 1, raw.as_bytes());
            write::bytes(self.out, self.tag, &inner);
        }
    }

    fn number<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        match self.field.kind {
            Kind::Integer => write::number(self.out, self.tag, number.cast_unsigned()),
            #[expect(clippy::cast_precision_loss, reason = "JSON's numbers are doubles")]
            Kind::Double => write::double(self.out, self.tag, number as f64),
            Kind::Special(Special::IntOrString) => {
                return nested(self.out, self.tag, |out| {
                    write::number(out, 1, 0);
                    write::number(out, 2, number.cast_unsigned());
                });
            }
            _ => return self.number_text(&number.to_string()),
        }
        Ok(())
    }

    /// A number that only a quantity can be.
    fn number_text<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Kind::Special(Special::Quantity) => self.visit_str(text),
            _ => Err(E::invalid_type(Unexpected::Other("number"), &self)),
        }
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of the field {}", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        match self.field.kind {
            _ if !self.is_element => {}
            Kind::Integer | Kind::Truth => write::number(self.out, self.tag, 0),
            Kind::Double => write::double(self.out, self.tag, 0.0),
            _ => write::bytes(self.out, self.tag, &[]),
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, truth: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Truth => write::number(self.out, self.tag, truth.into()),
            Kind::Special(Special::SchemaOrBool) => write::bytes(self.out, self.tag, &[ALLOWS, truth.into()]),
            _ => return Err(E::invalid_type(Unexpected::Bool(truth), &self)),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.number(number),
            #[expect(clippy::cast_precision_loss, reason = "JSON's numbers are doubles")]
            Err(_) if matches!(self.field.kind, Kind::Double) => self.visit_f64(number as f64),
            Err(_) => self.number_text(&number.to_string()),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that 64 bits hold")]
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => {
                write::double(self.out, self.tag, number);
                Ok(())
            }
            Kind::Integer if number.fract() == 0.0 && number.abs() < 9.0e15 => self.number(number as i64),
            _ => self.number_text(&number.to_string()),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let invalid = || Err(E::invalid_value(Unexpected::Str(text), &"another text"));
        let Self { field, tag, out, .. } = self;
        match field.kind {
            Kind::Text => write::bytes(out, tag, text.as_bytes()),
            Kind::Bytes => match special::unbase64(text) {
                Some(bytes) => write::bytes(out, tag, &bytes),
                None => return invalid(),
            },
            Kind::Special(Special::Quantity) => return nested(out, tag, |out| write::bytes(out, 1, text.as_bytes())),
            Kind::Special(Special::IntOrString) => {
                return nested(out, tag, |out| {
                    write::number(out, 1, 1);
                    write::bytes(out, 3, text.as_bytes());
                });
            }
            Kind::Special(Special::Time | Special::MicroTime) => {
                return write::nested(out, tag, |out| special::write_time(out, text).map_or_else(invalid, Ok));
            }
            Kind::Special(Special::Duration) => {
                return write::nested(out, tag, |out| special::write_duration(out, text).map_or_else(invalid, Ok));
            }
            _ => return Err(E::invalid_type(Unexpected::Str(text), &"a value of another type")),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        write::nested(self.out, self.tag, |out| match self.field.kind {
            Kind::Message(message) => Fields { message, out }.visit_seq(list),
            Kind::Special(Special::SchemaOrArray) => {
                while list.next_element_seed(Schema { tag: 2, out })?.is_some() {}
                Ok(())
            }
            Kind::Special(Special::SchemaOrNames) => {
                while let Some(name) = list.next_element::<String>()? {
                    write::bytes(out, 2, name.as_bytes());
                }
                Ok(())
            }
            _ => Err(A::Error::invalid_type(Unexpected::Seq, &self.field.name)),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        write::nested(self.out, self.tag, |out| match self.field.kind {
            Kind::Message(message) => Fields { message, out }.visit_map(map),
            Kind::Special(Special::SchemaOrBool) => {
                out.extend_from_slice(&[ALLOWS, 1]);
                Schema { tag: 2, out }.visit_map(map)
            }
            Kind::Special(Special::SchemaOrArray | Special::SchemaOrNames) => Schema { tag: 1, out }.visit_map(map),
            _ => Err(A::Error::invalid_type(Unexpected::Map, &self.field.name)),
        })
    }
}

/// The key of the first field, a boolean: whether anything is allowed where no schema says more.
const ALLOWS: u8 = 1 << 3;

fn nested<E>(out: &mut Vec<u8>, tag: u32, make: impl FnOnce(&mut Vec<u8>)) -> Result<(), E> {
    write::nested(out, tag, |out| {
        make(out);
        Ok(())
    })
}

/// A schema, under a tag.
struct Schema<'o> {
    tag: u32,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Schema<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Schema<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a schema")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let message = special::schemas().ok_or_else(|| A::Error::custom("schemas have no protobuf form"))?;
        write::nested(self.out, self.tag, |out| Fields { message, out }.visit_map(map))
    }
}
