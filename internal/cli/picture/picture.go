// Package picture draws differences over the steps of sequences, as PNG or SVG: a panel for each comparison, one above the
// other, with the same axes.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Series is a panel: a difference for each step.
type Series struct {
	Name, Verdict string
	Good          bool      // colors the panel
	First         int       // steps before it were not compared
	Values        []float64 // by step; none is negative
}

// Formats are the endings of files that Save writes.
var Formats = []string{".png", ".svg"}

const (
	width       = 16 * vg.Centimeter
	panelHeight = 2.9 * vg.Centimeter
	titleHeight = 1 * vg.Centimeter
	margin      = 0.3 * vg.Centimeter
	headingGap  = 3
	dpi         = 150

	// least and most bound the logarithmic axis.
	least, most = 1e-12, 1e12
)

var (
	good  = color.RGBA{0x1b, 0x6e, 0xc2, 0xff}
	bad   = color.RGBA{0xc6, 0x28, 0x28, 0xff}
	faint = color.Gray{0x70}
	grid  = color.Gray{0xe4}
)

// Save draws the series into a file, whose ending says the format.
func Save(path, title string, series []Series) error {
	series = slices.DeleteFunc(slices.Clone(series), func(s Series) bool { return len(s.Values) == 0 })
	height := titleHeight + vg.Length(max(len(series), 1))*panelHeight + margin
	canvas, err := newCanvas(filepath.Ext(path), height)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	paint(draw.New(canvas), title, series)
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	if _, err = canvas.WriteTo(file); err == nil {
		err = file.Close()
	} else {
		_ = file.Close()
	}
	if err != nil {
		return fmt.Errorf("writing the picture %s: %w", path, err)
	}
	return nil
}

type writerCanvas interface {
	vg.CanvasSizer
	io.WriterTo
}

func newCanvas(format string, height vg.Length) (writerCanvas, error) {
	switch format {
	case ".png":
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))}, nil
	case ".svg":
		return vgsvg.New(width, height), nil
	}
	return nil, fmt.Errorf("want a name that ends in %s", strings.Join(Formats, " or "))
}

// paint draws the title and the panels.
func paint(dc draw.Canvas, title string, series []Series) {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	style := plot.New().Title.TextStyle
	style.Font.Variant, style.Font.Size, style.XAlign, style.YAlign = "Sans", 12, draw.XLeft, draw.YTop
	dc.FillText(style, vg.Point{X: margin, Y: dc.Max.Y - margin}, title)
	low, high := bounds(series)
	var panels [][]*plot.Plot
	for i := range series {
		panels = append(panels, []*plot.Plot{panel(&series[i], low, high, i == len(series)-1)})
	}
	if len(panels) == 0 {
		return
	}
	area := draw.Crop(dc, margin, -2*margin, margin, -titleHeight)
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 0.2 * vg.Centimeter}
	for i, row := range plot.Align(panels, tiles, area) {
		panels[i][0].Draw(row[0])
	}
}

// bounds are the decades that hold all differences but zeros, which have no place on a logarithmic axis and are drawn at its
// foot.
func bounds(series []Series) (low, high float64) {
	low, high = math.Inf(1), 0
	for i := range series {
		for _, v := range series[i].Values {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return 1e-9, 1e-6
	}
	low, high = max(low, least), min(high, most) // a NaN, too, is a difference, and as large as a number can be
	low, high = math.Pow(10, math.Floor(math.Log10(low))-1), math.Pow(10, math.Ceil(math.Log10(high)))
	return min(low, most/1e3), max(high, low*1e3)
}

// panel is that of one series.
func panel(s *Series, low, high float64, last bool) *plot.Plot {
	p := plot.New()
	p.Title.Text = " " // room for the heading, which is not in the middle
	p.Title.TextStyle.Font.Variant, p.Title.TextStyle.Font.Size, p.Title.TextStyle.Color = "Sans", 9, s.color()
	p.Title.Padding = headingGap
	p.X.Min, p.X.Max = -0.5, float64(len(s.Values))-0.5
	p.Y.Min, p.Y.Max, p.Y.Scale, p.Y.Tick.Marker = low, high, plot.LogScale{}, plot.ConstantTicks(decades(low, high))
	p.X.Tick.Marker = plot.ConstantTicks(steps(len(s.Values)))
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label.Font.Variant, axis.Tick.Label.Font.Size, axis.Tick.Label.Color = "Sans", 8, faint
		axis.Label.TextStyle.Font.Variant, axis.Label.TextStyle.Font.Size = "Sans", 9
		axis.Color, axis.Tick.Color = faint, faint
	}
	if last {
		p.X.Label.Text = "step"
	} else {
		p.X.Tick.Marker = plot.ConstantTicks(nil)
	}
	p.Add(stems{s, low})
	return p
}

func (s *Series) color() color.Color {
	if s.Good {
		return good
	}
	return bad
}

// decades label the foot, which is zero, and few powers of ten.
func decades(low, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: low, Label: "0"}}
	first, last := int(math.Round(math.Log10(low)))+1, int(math.Round(math.Log10(high)))
	every := max(1, (last-first+2)/3)
	for e := last; e >= first; e -= every {
		ticks = append(ticks, plot.Tick{Value: math.Pow(10, float64(e)), Label: fmt.Sprintf("1e%d", e)})
	}
	return ticks
}

// steps are about ten whole numbers.
func steps(n int) (ticks []plot.Tick) {
	every := 1
	for i := 0; n/every > 12; i++ {
		every = []int{2, 5, 10}[i%3] * int(math.Pow10(i/3))
	}
	for step := 0; step < n; step += every {
		ticks = append(ticks, plot.Tick{Value: float64(step), Label: fmt.Sprint(step)})
	}
	return ticks
}

// stems draws a line with a head from the foot up to each difference, and a ring at the foot for none.
type stems struct {
	*Series
	foot float64
}

// Plot draws.
func (s stems) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max)[1:] {
		c.StrokeLine2(draw.LineStyle{Color: grid, Width: vg.Points(0.5)}, c.Min.X, y(tick.Value), c.Max.X, y(tick.Value))
	}
	for step, value := range s.Values {
		if step < s.First {
			continue
		}
		at := vg.Point{X: x(float64(step)), Y: y(min(max(value, s.foot), p.Y.Max))}
		if value <= 0 {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: s.color(), Radius: vg.Points(2), Shape: draw.RingGlyph{}}, at)
			continue
		}
		c.StrokeLine2(draw.LineStyle{Color: s.color(), Width: vg.Points(1.2)}, at.X, y(s.foot), at.X, at.Y)
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: s.color(), Radius: vg.Points(2.4), Shape: draw.CircleGlyph{}}, at)
	}
	heading := p.Title.TextStyle
	heading.XAlign, heading.YAlign = draw.XLeft, draw.YBottom
	c.FillText(heading, vg.Point{X: c.Min.X, Y: c.Max.Y + headingGap}, s.Name+": "+s.Verdict)
	if s.First > 0 {
		style := p.X.Tick.Label
		style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
		middle := (p.X.Min + float64(s.First) - 0.5) / 2
		c.FillText(style, vg.Point{X: x(middle), Y: c.Center().Y}, "not compared")
	}
}
