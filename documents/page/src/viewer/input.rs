//! Translates input events into actions. One table of keys; nothing of any window system.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// One that has a character, without Shift's doing for letters.
    Char(char),
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the top.
    Home,
    /// To the end.
    End,
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// Removes what is before.
    Backspace,
    /// The tabulator.
    Tab,
    /// F1 to F12.
    Function(u8),
}

/// Keys that are held meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// Control.
    pub ctrl: bool,
    /// Alt.
    pub alt: bool,
    /// Shift.
    pub shift: bool,
}

/// A button of the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Button {
    /// The one that clicks.
    Left,
    /// The wheel.
    Middle,
    /// The one by the thumb.
    Back,
    /// The other one by the thumb.
    Forward,
}

/// What a user does. Lengths are pixels of the window, from its left top.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Presses a key, which types this text.
    Key(Key, Modifiers, String),
    /// Moves the pointer there.
    Pointer(f64, f64),
    /// Moves the pointer out of the window.
    PointerGone,
    /// Presses a button where the pointer is.
    Press(Button),
    /// Lets it go.
    Release(Button),
    /// Scrolls by so much to the right and down.
    Scroll(f64, f64),
    /// Turns the wheel by so many notches to the right and down.
    Wheel(f64, f64),
    /// Makes the window so large.
    Resize(u32, u32),
    /// Moves the window to where a pixel of a page has so many thousandths of pixels.
    Scale(u32),
    /// Closes the window.
    Close,
}

/// What is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewerCommand {
    /// Lines to the right and down.
    Lines(i32, i32),
    /// Viewports down.
    Pages(i32),
    Top,
    End,
    Back,
    Forward,
    Reload,
    /// As if there were no cache.
    ReloadIgnoringCache,
    Find,
    FindNext,
    FindPrevious,
    Address,
    Larger,
    Smaller,
    Usual,
    NextLink,
    PreviousLink,
    Follow,
    Stop,
    Quit,
}

/// What a key means while nothing is typed into a line.
pub(crate) fn command(key: Key, held: Modifiers) -> Option<ViewerCommand> {
    let Modifiers { ctrl, alt, shift } = held;
    Some(match (key, ctrl, alt) {
        (Key::Left, false, true) => ViewerCommand::Back,
        (Key::Right, false, true) => ViewerCommand::Forward,
        (Key::Backspace, false, false) if shift => ViewerCommand::Forward,
        (Key::Backspace, false, false) => ViewerCommand::Back,
        (Key::Up, false, false) => ViewerCommand::Lines(0, -1),
        (Key::Down, false, false) => ViewerCommand::Lines(0, 1),
        (Key::Left, false, false) => ViewerCommand::Lines(-1, 0),
        (Key::Right, false, false) => ViewerCommand::Lines(1, 0),
        (Key::PageUp, false, false) => ViewerCommand::Pages(-1),
        (Key::PageDown, false, false) => ViewerCommand::Pages(1),
        (Key::Char(' '), false, false) => ViewerCommand::Pages(if shift { -1 } else { 1 }),
        (Key::Home, _, false) => ViewerCommand::Top,
        (Key::End, _, false) => ViewerCommand::End,
        (Key::Function(5), ctrl, false) if ctrl || shift => ViewerCommand::ReloadIgnoringCache,
        (Key::Function(5), _, false) => ViewerCommand::Reload,
        (Key::Char('r'), true, false) if shift => ViewerCommand::ReloadIgnoringCache,
        (Key::Char('r'), true, false) => ViewerCommand::Reload,
        (Key::Char('f'), true, false) | (Key::Char('/'), false, false) => ViewerCommand::Find,
        (Key::Function(3), false, false) | (Key::Char('g'), true, false) if shift => {
            ViewerCommand::FindPrevious
        }
        (Key::Function(3), false, false) | (Key::Char('g'), true, false) => ViewerCommand::FindNext,
        (Key::Char('l'), true, false) => ViewerCommand::Address,
        (Key::Char('+' | '='), true, false) => ViewerCommand::Larger,
        (Key::Char('-' | '_'), true, false) => ViewerCommand::Smaller,
        (Key::Char('0'), true, false) => ViewerCommand::Usual,
        (Key::Tab, false, false) if shift => ViewerCommand::PreviousLink,
        (Key::Tab, false, false) => ViewerCommand::NextLink,
        (Key::Enter, false, false) => ViewerCommand::Follow,
        (Key::Escape, false, false) => ViewerCommand::Stop,
        (Key::Char('w' | 'q'), true, false) => ViewerCommand::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_they_mean_in_other_browsers() {
        let none = Modifiers::default();
        let ctrl = Modifiers { ctrl: true, ..none };
        let alt = Modifiers { alt: true, ..none };
        let shift = Modifiers { shift: true, ..none };
        for (key, held, meant) in [
            (Key::Char('f'), ctrl, Some(ViewerCommand::Find)),
            (Key::Char('f'), none, None),
            (Key::Char('/'), none, Some(ViewerCommand::Find)),
            (Key::Char(' '), shift, Some(ViewerCommand::Pages(-1))),
            (Key::Left, alt, Some(ViewerCommand::Back)),
            (Key::Left, none, Some(ViewerCommand::Lines(-1, 0))),
            (Key::Backspace, none, Some(ViewerCommand::Back)),
            (Key::Function(5), none, Some(ViewerCommand::Reload)),
            (Key::Function(5), shift, Some(ViewerCommand::ReloadIgnoringCache)),
            (Key::Char('q'), ctrl, Some(ViewerCommand::Quit)),
            (Key::Char('q'), Modifiers { alt: true, ..ctrl }, None),
        ] {
            assert_eq!(command(key, held), meant, "{key:?} {held:?}");
        }
    }
}
