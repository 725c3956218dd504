//! Who the sink is to the server.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::Auth;
use dispatch_api::Fingerprint;
use nkeys::KeyPair;
use zeroize::Zeroizing;

/// The configured way to authenticate. `Debug` shows no secret.
#[derive(Clone)]
pub(crate) enum Credentials {
    None,
    Token(Zeroizing<String>),
    User(String, Zeroizing<String>),
    /// Read anew for every connection.
    File(PathBuf),
}

impl Credentials {
    /// What tells these from others, without holding them.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::None => Fingerprint::default(),
            Self::Token(token) => Fingerprint::of([b"token".as_slice(), token.as_bytes()]),
            Self::User(user, password) => {
                Fingerprint::of([b"user".as_slice(), user.as_bytes(), password.as_bytes()])
            }
            Self::File(path) => {
                let content = std::fs::read(path).unwrap_or_default();
                Fingerprint::of([
                    b"file".as_slice(),
                    path.as_os_str().as_encoded_bytes(),
                    &content,
                ])
            }
        }
    }

    /// What one connection authenticates with. Reads the file, if there is one, and so
    /// blocks for that long.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub(crate) fn load(&self) -> Result<Identity, InvalidCredentialsFile> {
        Ok(match self {
            Self::None => Identity::Plain(Auth::new()),
            Self::Token(token) => {
                let mut auth = Auth::new();
                auth.token = Some(String::clone(token));
                Identity::Plain(auth)
            }
            Self::User(user, password) => {
                let mut auth = Auth::new();
                auth.username = Some(user.clone());
                auth.password = Some(String::clone(password));
                Identity::Plain(auth)
            }
            Self::File(path) => Identity::Signing(Box::new(CredentialsFile::read(path)?)),
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token(redacted)"),
            Self::User(user, _) => write!(f, "User({user:?}, redacted)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// What one connection authenticates with.
pub(crate) enum Identity {
    Plain(Auth),
    Signing(Box<CredentialsFile>),
}

impl Identity {
    /// The answer to a server's challenge.
    ///
    /// # Errors
    ///
    /// When the seed cannot sign.
    pub(crate) fn answer(&self, nonce: &[u8]) -> Result<Auth, nkeys::error::Error> {
        Ok(match self {
            Self::Plain(auth) => auth.clone(),
            Self::Signing(file) => {
                let mut auth = Auth::new();
                auth.jwt = Some(String::clone(&file.jwt));
                auth.signature = Some(file.key.sign(nonce)?);
                auth
            }
        })
    }
}

/// A user's JWT and the key that signs for it.
pub(crate) struct CredentialsFile {
    jwt: Zeroizing<String>,
    key: KeyPair,
}

impl CredentialsFile {
    /// Reads a file as the NATS tools write it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, InvalidCredentialsFile> {
        let text = std::fs::read_to_string(path)
            .map(Zeroizing::new)
            .map_err(|error| InvalidCredentialsFile::Unreadable(error.kind()))?;
        let jwt = section(&text, "NATS USER JWT").ok_or(InvalidCredentialsFile::NoJwt)?;
        let seed = section(&text, "USER NKEY SEED").ok_or(InvalidCredentialsFile::NoSeed)?;
        let key = KeyPair::from_seed(seed).map_err(|_| InvalidCredentialsFile::NoSeed)?;
        Ok(Self {
            jwt: Zeroizing::new(jwt.to_owned()),
            key,
        })
    }
}

/// The line between the marks of a section.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("BEGIN {name}");
    let mut lines = text.lines();
    lines.find(|line| line.starts_with("---") && line.contains(&begin))?;
    let content = lines.map(str::trim).find(|line| !line.is_empty())?;
    (!content.starts_with("---")).then_some(content)
}

/// Why a credentials file cannot be used. It quotes nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidCredentialsFile {
    Unreadable(std::io::ErrorKind),
    NoJwt,
    NoSeed,
}

impl fmt::Display for InvalidCredentialsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(kind) => write!(f, "cannot be read ({kind})"),
            Self::NoJwt => f.write_str(
                "holds no user JWT: expected a file with the sections NATS USER JWT and USER \
                 NKEY SEED",
            ),
            Self::NoSeed => f.write_str(
                "holds no valid seed: expected a file with the sections NATS USER JWT and USER \
                 NKEY SEED",
            ),
        }
    }
}

impl std::error::Error for InvalidCredentialsFile {}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn problem(text: &str) -> InvalidCredentialsFile {
        CredentialsFile::read(file_of(text).path()).err().unwrap()
    }

    #[test]
    fn a_file_of_the_nats_tools_signs_the_challenge_with_its_seed() {
        let key = KeyPair::new_user();
        let seed = key.seed().unwrap();
        let file = file_of(&format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.e30.sig\n------END NATS USER JWT------\n\n\
             ***** IMPORTANT *****\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n\
             ------END USER NKEY SEED------\n"
        ));
        let identity = Credentials::File(file.path().to_owned()).load().unwrap();
        let auth = identity.answer(b"nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("eyJ0.e30.sig"));
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn a_file_without_a_section_says_which_and_quotes_nothing() {
        assert_eq!(problem("canary"), InvalidCredentialsFile::NoJwt);
        let jwt = "-----BEGIN NATS USER JWT-----\ncanary\n------END NATS USER JWT------\n";
        assert_eq!(problem(jwt), InvalidCredentialsFile::NoSeed);
        let bad = format!("{jwt}-----BEGIN USER NKEY SEED-----\ncanary\n------END------\n");
        assert_eq!(problem(&bad), InvalidCredentialsFile::NoSeed);
        assert!(!problem(&bad).to_string().contains("canary"));
    }
}
