//! The pixels of the window: the painted page, marks of matches and focus, scroll bars, the status
//! line.

use super::place::{ScrollBar, WindowArea};
use super::{ShownPicture, Viewer};
use crate::pixels::Pixels;

/// Red, green and blue, as windows have them.
type Color = u32;

const PAPER: Color = 0x00ff_ffff;
const TRACK: Color = 0x00f0_f0f0;
const THUMB: Color = 0x00b4_b4b4;
const HELD_THUMB: Color = 0x0078_7878;
const LINE: Color = 0x00ec_ecec;
const FOCUS: Color = 0x0020_60e0;
/// What white becomes where something is found, and where one has come to.
const FOUND: Color = 0x00ff_f080;
const FOUND_HERE: Color = 0x00ff_b050;

/// Pixels of a window, line by line.
struct Canvas<'a> {
    width: u32,
    height: u32,
    pixels: &'a mut [Color],
}

impl Canvas<'_> {
    /// The pixels of a line of an area, as far as they are in the window.
    fn row(&mut self, area: WindowArea, y: u32) -> &mut [Color] {
        let (from, to) =
            (area.x.min(self.width), area.x.saturating_add(area.width).min(self.width));
        if y >= self.height {
            return &mut [];
        }
        let start = y as usize * self.width as usize;
        self.pixels.get_mut(start + from as usize..start + to as usize).unwrap_or_default()
    }

    fn each(&mut self, area: WindowArea, work: impl Fn(&mut Color)) {
        for y in area.y..area.y.saturating_add(area.height).min(self.height) {
            self.row(area, y).iter_mut().for_each(&work);
        }
    }

    fn fill(&mut self, area: WindowArea, color: Color) {
        self.each(area, |pixel| *pixel = color);
    }

    /// Colours white, and what is darker less.
    fn stain(&mut self, area: WindowArea, color: Color) {
        self.each(area, |pixel| {
            let one = |shift: u32| {
                (((*pixel >> shift) & 0xff) * ((color >> shift) & 0xff) / 0xff) << shift
            };
            *pixel = one(16) | one(8) | one(0);
        });
    }

    fn frame(&mut self, area: WindowArea, color: Color) {
        let WindowArea { x, y, width, height } = area;
        self.fill(WindowArea { height: 2, ..area }, color);
        self.fill(WindowArea { y: (y + height).saturating_sub(2), height: 2, ..area }, color);
        self.fill(WindowArea { width: 2, ..area }, color);
        self.fill(WindowArea { x: (x + width).saturating_sub(2), width: 2, ..area }, color);
    }

    fn copy(&mut self, area: WindowArea, from: &Pixels) {
        let lines =
            from.bytes.chunks_exact(from.width.max(1) as usize * 4).take(area.height as usize);
        for (line, y) in lines.zip(area.y..) {
            for (to, pixel) in self.row(area, y).iter_mut().zip(line.chunks_exact(4)) {
                *to = u32::from_be_bytes([0, pixel[0], pixel[1], pixel[2]]);
            }
        }
    }
}

impl Viewer {
    /// What the window shows: `pixels` are as many as [`Viewer::size`] says, each with red, green
    /// and blue in its lower bytes.
    pub(crate) fn compose(&self, pixels: &mut [u32]) {
        let (width, height) = self.size;
        let parts = self.parts();
        let canvas = &mut Canvas { width, height, pixels };
        canvas.fill(WindowArea { x: 0, y: 0, width, height }, PAPER);
        if let Some(picture) = &self.picture {
            canvas.copy(parts.page, &picture.pixels);
            self.mark(canvas, parts.page, picture);
        }
        canvas.fill(parts.line, LINE);
        if let Some(line) = &self.line.1 {
            canvas.copy(parts.line, line);
        }
        let [across, down] = self.bars();
        canvas.fill(parts.beside, TRACK);
        let color = |direction| match self.held_bar {
            Some((held, _)) if held == direction => HELD_THUMB,
            _ => THUMB,
        };
        let down = ScrollBar { track: parts.beside.height, ..down };
        if let Some((from, length)) = down.thumb() {
            let WindowArea { x, width, .. } = parts.beside;
            let thumb =
                WindowArea { x: x + 2, y: from, width: width.saturating_sub(4), height: length };
            canvas.fill(thumb, color(super::Axis::Down));
        }
        if let Some((from, length)) = across.thumb() {
            canvas.fill(parts.below, TRACK);
            let thumb = WindowArea { x: from, width: length, ..parts.below };
            canvas.fill(thumb, color(super::Axis::Across));
        }
    }

    /// What is found, and the link that the keyboard is on.
    fn mark(&self, canvas: &mut Canvas<'_>, page: WindowArea, picture: &ShownPicture) {
        // What stays in its place has one in the viewport.
        let scrolled = |is_fixed| if is_fixed { (0, 0) } else { picture.scroll };
        if let Some(finding) = &self.finding {
            for (number, one) in finding.matches.iter().enumerate() {
                let color = if number == finding.at { FOUND_HERE } else { FOUND };
                for area in one
                    .places
                    .iter()
                    .filter_map(|piece| on_screen(*piece, scrolled(one.fixed), page))
                {
                    canvas.stain(area, color);
                }
            }
        }
        if let Some(link) = self.focused() {
            let pieces = self.page.iter().flat_map(|page| &page.links).filter(|piece| {
                piece.href == link.href && (piece.place[1] - link.place[3]).abs() < 4.0
                    || std::ptr::eq(*piece, link)
            });
            for area in
                pieces.filter_map(|piece| on_screen(piece.place, scrolled(piece.fixed), page))
            {
                canvas.frame(area, FOCUS);
            }
        }
    }
}

/// Where a rectangle of the page is in the window, if it is there.
fn on_screen(
    [left, top, right, bottom]: [f32; 4],
    scroll: (u32, u32),
    page: WindowArea,
) -> Option<WindowArea> {
    let one = |from: f32, to: f32, scroll: u32, size: u32| {
        let end = f64::from(size);
        let from = (f64::from(from).floor() - f64::from(scroll)).clamp(0.0, end);
        let to = (f64::from(to).ceil() - f64::from(scroll)).clamp(0.0, end);
        (to > from).then_some((from as u32, (to - from) as u32))
    };
    let (x, width) = one(left, right, scroll.0, page.width)?;
    let (y, height) = one(top, bottom, scroll.1, page.height)?;
    Some(WindowArea { x: page.x + x, y: page.y + y, width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rectangles of the page are clipped at the edge of the window.
    #[test]
    fn page_rectangles_are_cut_at_the_window() {
        let page = WindowArea { x: 0, y: 0, width: 100, height: 50 };
        let at = |place| on_screen(place, (0, 200), page);
        assert_eq!(
            at([10.2, 210.0, 20.0, 215.5]),
            Some(WindowArea { x: 10, y: 10, width: 10, height: 6 })
        );
        assert_eq!(
            at([90.0, 190.0, 200.0, 210.0]),
            Some(WindowArea { x: 90, y: 0, width: 10, height: 10 })
        );
        assert_eq!(at([0.0, 0.0, 10.0, 199.0]), None);
        assert_eq!(at([f32::NAN, 0.0, f32::INFINITY, 300.0]), None, "nothing that is no number");
    }

    #[test]
    fn what_is_found_is_coloured_and_text_on_it_stays() {
        let mut pixels = vec![PAPER, 0, PAPER];
        let canvas = &mut Canvas { width: 3, height: 1, pixels: &mut pixels };
        canvas.stain(WindowArea { x: 0, y: 0, width: 2, height: 9 }, FOUND);
        assert_eq!(pixels, [FOUND, 0, PAPER]);
    }
}
