//! What the tests of several crates share: scratch homes, damaged images, killed children.
