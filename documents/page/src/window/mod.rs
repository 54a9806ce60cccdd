//! The window: hands what the user does to the viewer and what the viewer has to the screen. Thin;
//! nothing of a page is known here.
//!
//! The page is on its way before there is a window, and pixels wait for no fonts: the line below
//! comes when it is there.

mod keys;

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use softbuffer::{Context, Surface};
use winit::application::ApplicationHandler;
use winit::dpi::{PhysicalPosition, PhysicalSize};
use winit::event::{ElementState, MouseScrollDelta, WindowEvent};
use winit::event_loop::{
    ActiveEventLoop, ControlFlow, EventLoop, EventLoopProxy, OwnedDisplayHandle,
};
use winit::window::{CursorIcon, Window, WindowId};

use crate::viewer::talk::ViewerEvent;
use crate::viewer::{Cursor, Input, Modifiers, OpenStats, Opener, PageThreads, Viewer};
use crate::{Address, View};

/// Why there is no window.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Nothing says where windows are shown.
    #[error(
        "there is no display to open a window on: set DISPLAY (X11) or WAYLAND_DISPLAY to one, or write a picture \
         instead (--png FILE)"
    )]
    NoDisplay,
    /// The display cannot be used.
    #[error(
        "the display cannot be used: {reason}; look at DISPLAY and WAYLAND_DISPLAY, or write a picture instead \
         (--png FILE)"
    )]
    Display {
        /// What was said.
        reason: String,
    },
    /// The display does not take the picture.
    #[error("cannot show a picture in the window: {reason}")]
    Draw {
        /// What was said.
        reason: String,
    },
}

fn display_error(reason: impl ToString) -> WindowError {
    WindowError::Display { reason: reason.to_string() }
}

fn draw_error(reason: impl ToString) -> WindowError {
    WindowError::Draw { reason: reason.to_string() }
}

/// The first complete picture in the window.
#[derive(Clone, Debug)]
pub struct FirstFrame {
    /// From the beginning until there was a window.
    pub window: Duration,
    /// From the beginning until the picture was on the screen.
    pub shown: Duration,
    /// What served the page.
    pub served: OpenStats,
    /// Its title.
    pub title: String,
}

/// What is to be said when the window is closed.
#[derive(Clone, Debug, Default)]
pub struct ClosedWindow {
    /// None, if it was closed before that.
    pub first: Option<FirstFrame>,
    /// What could not be told in the window any more: that a page is not kept, and the like, for
    /// people.
    pub notes: Vec<String>,
}

/// Shows a page in a window until that is closed, or, if it ends `after_first_frame`, until the
/// page is on the screen. Durations are `since` then.
///
/// # Errors
/// [`WindowError`]. What is wrong with a page is shown in the window.
pub fn show(
    address: Address,
    view: View,
    opener: Opener,
    after_first_frame: bool,
    since: Instant,
) -> Result<ClosedWindow, WindowError> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"].into_iter().any(is_set) {
        return Err(WindowError::NoDisplay);
    }
    let (sender, answers) = channel();
    let waker: Arc<OnceLock<Mutex<EventLoopProxy<()>>>> = Arc::default();
    let proxy = Arc::clone(&waker);
    let mut pages = PageThreads::new(opener, move |answer| {
        // A receiver that is gone wants no answer.
        let _ = sender.send(answer);
        if let Some(proxy) = proxy.get() {
            let _ = proxy.lock().unwrap_or_else(PoisonError::into_inner).send_event(());
        }
    });
    let mut viewer = Viewer::new(address, view, 1000);
    viewer.take_asks().into_iter().for_each(|ask| pages.serve(ask));
    let mut app = App {
        viewer,
        pages,
        answers,
        screen: None,
        held: Modifiers::default(),
        title: String::new(),
        cursor: Cursor::default(),
        after_first_frame,
        since,
        window_at: Duration::ZERO,
        first: None,
        drawn: None,
        notes: Vec::new(),
        failure: None,
    };
    // A library of the display that is not there is a panic of the code that looks for it.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let event_loop = EventLoop::<()>::with_user_event().build().map_err(display_error)?;
        let _ = waker.set(Mutex::new(event_loop.create_proxy()));
        event_loop.set_control_flow(ControlFlow::Wait);
        event_loop.run_app(&mut app).map_err(display_error)
    }));
    // Before what is being kept is waited for: a window that answers nothing is not left standing.
    drop(app.screen.take());
    let App { pages, first, failure, answers, mut notes, .. } = app;
    let late = pages.close();
    let is_note =
        |answer| if let ViewerEvent::Note { text, .. } = answer { Some(text) } else { None };
    notes.extend(answers.try_iter().filter_map(is_note).chain(late));
    let words = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
    };
    ran.unwrap_or_else(|panic| Err(display_error(words(panic))))?;
    failure.map_or(Ok(ClosedWindow { first, notes }), Err)
}

/// A window with what it shows.
struct Screen {
    window: Arc<Window>,
    surface: Surface<OwnedDisplayHandle, Arc<Window>>,
}

/// A window that another one covers is never as it was drawn.
const BELIEVED_AFTER: Duration = Duration::from_secs(5);

struct App {
    viewer: Viewer,
    pages: PageThreads,
    answers: Receiver<ViewerEvent>,
    screen: Option<Screen>,
    held: Modifiers,
    title: String,
    cursor: Cursor,
    after_first_frame: bool,
    since: Instant,
    window_at: Duration,
    first: Option<FirstFrame>,
    /// When what is to be the first frame was drawn first.
    drawn: Option<Instant>,
    /// What is to be said when the window is gone.
    notes: Vec<String>,
    failure: Option<WindowError>,
}

impl App {
    fn open_window(&mut self, event_loop: &ActiveEventLoop) -> Result<Screen, WindowError> {
        let (width, height) = self.viewer.size();
        self.title = self.viewer.title();
        let attributes = Window::default_attributes()
            .with_title(self.title.clone())
            .with_inner_size(PhysicalSize::new(width, height))
            .with_min_inner_size(PhysicalSize::new(120, 80));
        let window = Arc::new(event_loop.create_window(attributes).map_err(display_error)?);
        let context = Context::new(event_loop.owned_display_handle()).map_err(draw_error)?;
        let surface = Surface::new(&context, Arc::clone(&window)).map_err(draw_error)?;
        Ok(Screen { window, surface })
    }

    fn draw(&mut self) -> Result<(), WindowError> {
        let Some(screen) = &mut self.screen else { return Ok(()) };
        let (width, height) = self.viewer.size();
        let (Some(w), Some(h)) = (NonZeroU32::new(width), NonZeroU32::new(height)) else {
            return Ok(());
        };
        screen.surface.resize(w, h).map_err(draw_error)?;
        let mut buffer = screen.surface.buffer_mut().map_err(draw_error)?;
        self.viewer.compose(&mut buffer);
        let is_first = self.first.is_none() && self.viewer.is_settled();
        let shown = (is_first && self.after_first_frame).then(|| buffer.to_vec());
        screen.window.pre_present_notify();
        buffer.present().map_err(draw_error)?;
        if !is_first {
            return Ok(());
        }
        // A measurement wants to know that it is there; a display that cannot be asked is
        // believed.
        if let (Some(shown), Ok(there)) = (shown, screen.surface.fetch())
            && !is_alike(&there, &shown)
            && self.drawn.get_or_insert_with(Instant::now).elapsed() < BELIEVED_AFTER
        {
            screen.window.request_redraw();
            return Ok(());
        }
        if let Some((served, title)) = self.viewer.shown() {
            let (window, shown) = (self.window_at, self.since.elapsed());
            self.first = Some(FirstFrame { window, shown, served, title: title.to_owned() });
        }
        Ok(())
    }

    /// Hands on what there is, both ways.
    fn exchange(&mut self, event_loop: &ActiveEventLoop) {
        while let Ok(answer) = self.answers.try_recv() {
            // The line of a window is not read that ends by itself.
            if let (true, ViewerEvent::Note { text, .. }) = (self.after_first_frame, &answer) {
                self.notes.push(text.clone());
            }
            self.viewer.answer(answer);
        }
        for ask in self.viewer.take_asks() {
            self.pages.serve(ask);
        }
        let is_shown = self.first.is_some() || self.viewer.has_nothing();
        if self.viewer.is_done() || self.failure.is_some() || self.after_first_frame && is_shown {
            event_loop.exit();
            return;
        }
        let Some(screen) = &self.screen else { return };
        if self.viewer.take_changed() {
            screen.window.request_redraw();
        }
        let title = self.viewer.title();
        if title != self.title {
            screen.window.set_title(&title);
            self.title = title;
        }
        let cursor = self.viewer.cursor();
        if cursor != self.cursor {
            screen.window.set_cursor(match cursor {
                Cursor::Arrow => CursorIcon::Default,
                Cursor::Hand => CursorIcon::Pointer,
            });
            self.cursor = cursor;
        }
    }

    fn input(&mut self, event: &WindowEvent) -> Option<Input> {
        Some(match event {
            WindowEvent::CloseRequested | WindowEvent::Destroyed => Input::Close,
            WindowEvent::Resized(PhysicalSize { width, height }) => Input::Resize(*width, *height),
            WindowEvent::ScaleFactorChanged { scale_factor, .. } => {
                Input::Scale(permille(*scale_factor))
            }
            WindowEvent::ModifiersChanged(now) => {
                self.held = keys::held(now.state());
                return None;
            }
            WindowEvent::KeyboardInput { event, .. } if event.state == ElementState::Pressed => {
                let text = event.text.as_ref().map(ToString::to_string).unwrap_or_default();
                Input::Key(keys::key(&event.logical_key)?, self.held, text)
            }
            WindowEvent::CursorMoved { position: PhysicalPosition { x, y }, .. } => {
                Input::Pointer(*x, *y)
            }
            WindowEvent::CursorLeft { .. } => Input::PointerGone,
            WindowEvent::MouseWheel { delta: MouseScrollDelta::LineDelta(x, y), .. } => {
                Input::Wheel(-f64::from(*x), -f64::from(*y))
            }
            WindowEvent::MouseWheel { delta: MouseScrollDelta::PixelDelta(by), .. } => {
                Input::Scroll(-by.x, -by.y)
            }
            WindowEvent::MouseInput { state, button, .. } => {
                let button = keys::button(*button)?;
                match state {
                    ElementState::Pressed => Input::Press(button),
                    ElementState::Released => Input::Release(button),
                }
            }
            _ => return None,
        })
    }
}

impl ApplicationHandler for App {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.screen.is_some() {
            return;
        }
        match self.open_window(event_loop) {
            Ok(screen) => {
                self.window_at = self.since.elapsed();
                self.viewer.input(Input::Scale(permille(screen.window.scale_factor())));
                let PhysicalSize { width, height } = screen.window.inner_size();
                if width > 0 && height > 0 {
                    self.viewer.input(Input::Resize(width, height));
                }
                self.screen = Some(screen);
            }
            Err(error) => self.failure = Some(error),
        }
    }

    fn window_event(&mut self, _: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        if matches!(event, WindowEvent::RedrawRequested) {
            if let Err(error) = self.draw() {
                self.failure = Some(error);
            }
        } else if let Some(input) = self.input(&event) {
            self.viewer.input(input);
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        self.exchange(event_loop);
    }
}

fn permille(factor: f64) -> u32 {
    (factor * 1000.0).round().clamp(100.0, 10_000.0) as u32
}

/// Whether the colours are the same: what else is in a pixel does not count.
fn is_alike(one: &[u32], other: &[u32]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| (one ^ other) & 0x00ff_ffff == 0)
}
