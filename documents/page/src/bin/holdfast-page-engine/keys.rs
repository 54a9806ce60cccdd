//! Keys and buttons of the window system, as the viewer has them.

use holdfast_page::{Button, Key, Modifiers};
use winit::event::MouseButton;
use winit::keyboard::{self, ModifiersState, NamedKey};

pub(crate) fn held(state: ModifiersState) -> Modifiers {
    Modifiers { ctrl: state.control_key(), alt: state.alt_key(), shift: state.shift_key() }
}

pub(crate) fn button(button: MouseButton) -> Option<Button> {
    Some(match button {
        MouseButton::Left => Button::Left,
        MouseButton::Middle => Button::Middle,
        MouseButton::Back => Button::Back,
        MouseButton::Forward => Button::Forward,
        _ => return None,
    })
}

pub(crate) fn key(key: &keyboard::Key) -> Option<Key> {
    let named = match key {
        keyboard::Key::Character(text) => {
            let first = text.chars().next()?;
            return Some(Key::Char(first.to_lowercase().next().unwrap_or(first)));
        }
        keyboard::Key::Named(named) => named,
        _ => return None,
    };
    Some(match named {
        NamedKey::ArrowUp => Key::Up,
        NamedKey::ArrowDown => Key::Down,
        NamedKey::ArrowLeft => Key::Left,
        NamedKey::ArrowRight => Key::Right,
        NamedKey::PageUp => Key::PageUp,
        NamedKey::PageDown => Key::PageDown,
        NamedKey::Home => Key::Home,
        NamedKey::End => Key::End,
        NamedKey::Enter => Key::Enter,
        NamedKey::Escape => Key::Escape,
        NamedKey::Backspace => Key::Backspace,
        NamedKey::Tab => Key::Tab,
        NamedKey::Space => Key::Char(' '),
        NamedKey::F3 => Key::Function(3),
        NamedKey::F5 => Key::Function(5),
        _ => return None,
    })
}
