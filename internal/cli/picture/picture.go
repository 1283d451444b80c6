// Package picture draws numbers over steps: a line for each series, as PNG or SVG.
package picture

import (
	"fmt"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// A Series is a line: a number for each step.
type Series struct {
	Name   string
	Values []float64
}

// Formats are the endings of files that Save writes.
var Formats = []string{".png", ".svg"}

// Save draws the series into a file, whose ending says the format.
func Save(path, title, unit string, series []Series) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "step", unit
	p.Y.Min, p.X.Min = 0, 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, s := range series {
		points := make(plotter.XYs, len(s.Values))
		for step, value := range s.Values {
			points[step].X, points[step].Y = float64(step), value
			p.Y.Max = max(p.Y.Max, value)
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("drawing %q: %w", s.Name, err)
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		line.Dashes = plotutil.Dashes(i)
		p.Add(line, marks)
		p.Legend.Add(s.Name, line, marks)
	}
	if p.Y.Max == 0 {
		p.Y.Max = 1 // else a line at 0 has no scale
	}
	if err := p.Save(16*vg.Centimeter, 9*vg.Centimeter, path); err != nil {
		return fmt.Errorf("writing %s: %w: want a name that ends in %s", filepath.Base(path), err, strings.Join(Formats, " or "))
	}
	return nil
}
