//! The ciphers behind providers, in upstream's formats: a random nonce, then the sealed bytes.

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::aes::cipher::block_padding::Pkcs7;
use aes_gcm::aes::cipher::{BlockDecryptMut as _, BlockEncryptMut as _, KeyIvInit as _};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use aes_gcm::{AesGcm, KeyInit as _};
use api_clock::rand::RngCore as _;
use crypto_secretbox::XSalsa20Poly1305;

/// Seals and opens with one key. Failures have no reason: there is only one, a wrong key or changed bytes.
pub(super) trait Cipher: Send + Sync {
    /// `context` is authenticated where the format allows it.
    fn seal(&self, context: &[u8], plain: &[u8]) -> Option<Vec<u8>>;

    /// The bytes that [`Cipher::seal`] got.
    fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>>;
}

/// AES in Galois/Counter Mode.
const GCM_NONCE_LEN: usize = 12;

/// `aesgcm`, by the key's length.
pub(super) fn aes_gcm(key: &[u8]) -> Option<Box<dyn Cipher>> {
    use aes_gcm::aead::consts::U12;
    Some(match key.len() {
        16 => Box::new(Gcm(AesGcm::<Aes128, U12>::new_from_slice(key).ok()?)),
        24 => Box::new(Gcm(AesGcm::<Aes192, U12>::new_from_slice(key).ok()?)),
        32 => Box::new(Gcm(AesGcm::<Aes256, U12>::new_from_slice(key).ok()?)),
        _ => return None,
    })
}

struct Gcm<C>(C);

impl<C> Cipher for Gcm<C>
where
    C: aes_gcm::aead::Aead<NonceSize = aes_gcm::aead::consts::U12> + Send + Sync,
{
    fn seal(&self, context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let nonce = random::<GCM_NONCE_LEN>();
        let sealed = self.0.encrypt((&nonce).into(), Payload { msg: plain, aad: context }).ok()?;
        Some([&nonce, sealed.as_slice()].concat())
    }

    fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<GCM_NONCE_LEN>()?;
        self.0.decrypt(nonce.into(), Payload { msg: sealed, aad: context }).ok()
    }
}

/// XSalsa20 and Poly1305, as NaCl has them.
const BOX_NONCE_LEN: usize = 24;

/// `secretbox`, whose format authenticates no context.
pub(super) fn secretbox(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Some(Box::new(SecretBox(XSalsa20Poly1305::new_from_slice(key).ok()?)))
}

struct SecretBox(XSalsa20Poly1305);

impl Cipher for SecretBox {
    fn seal(&self, _context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let nonce = random::<BOX_NONCE_LEN>();
        let sealed = self.0.encrypt((&nonce).into(), plain).ok()?;
        Some([&nonce, sealed.as_slice()].concat())
    }

    fn open(&self, _context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<BOX_NONCE_LEN>()?;
        self.0.decrypt(nonce.into(), sealed).ok()
    }
}

const BLOCK_LEN: usize = 16;

/// `aescbc`, by the key's length; for values that were written with it. It does not detect changed bytes.
pub(super) fn aes_cbc(key: &[u8]) -> Option<Box<dyn Cipher>> {
    match key.len() {
        16 | 24 | 32 => Some(Box::new(Cbc(key.to_vec()))),
        _ => None,
    }
}

struct Cbc(Vec<u8>);

impl Cipher for Cbc {
    fn seal(&self, _context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let iv = random::<BLOCK_LEN>();
        let sealed = match self.0.len() {
            16 => cbc::Encryptor::<Aes128>::new_from_slices(&self.0, &iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(plain),
            24 => cbc::Encryptor::<Aes192>::new_from_slices(&self.0, &iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(plain),
            _ => cbc::Encryptor::<Aes256>::new_from_slices(&self.0, &iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(plain),
        };
        Some([&iv, sealed.as_slice()].concat())
    }

    fn open(&self, _context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (iv, sealed) = sealed.split_first_chunk::<BLOCK_LEN>()?;
        match self.0.len() {
            16 => cbc::Decryptor::<Aes128>::new_from_slices(&self.0, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(sealed).ok(),
            24 => cbc::Decryptor::<Aes192>::new_from_slices(&self.0, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(sealed).ok(),
            _ => cbc::Decryptor::<Aes256>::new_from_slices(&self.0, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(sealed).ok(),
        }
    }
}

fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    api_clock::rng().fill_bytes(&mut bytes);
    bytes
}
