//! What the server asks and hostd answers; `src/protocol/hostd.ts` is the schema. A request is one line of JSON: in a frame of `serve`
//! and of the relay, or as the argument of `perform`.

pub mod answer;
pub mod fields;
pub mod frame;
pub mod request;

/// Of the requests and answers; a change of either changes it. Both sides refuse to go on with another one.
pub const VERSION: u64 = 1;
