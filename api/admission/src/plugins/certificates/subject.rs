//! The subject of a certificate request.

use api_model::message::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, parse_x509_pem};
use x509_parser::x509::AttributeTypeAndValue;

/// The subject that a certificate would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// All common names: readers of certificates differ in which one they use if there are several.
    pub common_names: Vec<String>,
    /// The groups.
    pub organizations: Vec<String>,
}

impl Subject {
    /// Reads the subject from the base64 PEM of `spec.request`.
    ///
    /// # Errors
    /// The request does not parse, or has a text in an unknown encoding: other readers may understand that text.
    pub fn from_request(request: &str) -> Result<Self, Message> {
        let pem = STANDARD.decode(request).map_err(|e| e.to_string())?;
        let (_, block) = parse_x509_pem(&pem).map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err("PEM block type must be CERTIFICATE REQUEST".into());
        }
        let (_, parsed) = X509CertificationRequest::from_der(&block.contents).map_err(|e| e.to_string())?;
        let subject = &parsed.certification_request_info.subject;
        Ok(Self { common_names: texts(subject.iter_common_name())?, organizations: texts(subject.iter_organization())? })
    }
}

fn texts<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Result<Vec<String>, Message> {
    attributes.map(|attribute| attribute.as_str().map(str::to_owned).map_err(|e| e.to_string().into())).collect()
}
