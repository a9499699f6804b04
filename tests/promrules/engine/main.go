// Prometheus' own PromQL engine over series from a file, behind /api/v1/query and query_range.
//
//	engine3 SERIES.json HOST:PORT
//
// SERIES.json: [{"labels": {"__name__": "a"}, "times": [1.5], "values": ["NaN"]}], in Unix seconds.
package main

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type series struct {
	Labels map[string]string
	Times  []float64
	Values []string
}

type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

type held struct {
	lset    labels.Labels
	samples []chunks.Sample
}

type store struct{ all []held }

type querier struct {
	from, to int64
	all      []held
}

func (s store) Querier(from, to int64) (storage.Querier, error) {
	return querier{from, to, s.all}, nil
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
next:
	for _, one := range q.all {
		for _, matcher := range matchers {
			if !matcher.Matches(one.lset.Get(matcher.Name)) {
				continue next
			}
		}
		var kept []chunks.Sample
		for _, each := range one.samples {
			if each.T() >= q.from && each.T() <= q.to {
				kept = append(kept, each)
			}
		}
		if len(kept) > 0 {
			found = append(found, storage.NewListSeries(one.lset, kept))
		}
	}
	return &set{found, -1}
}

type set struct {
	found []storage.Series
	at    int
}

func (s *set) Next() bool                      { s.at++; return s.at < len(s.found) }
func (s *set) At() storage.Series              { return s.found[s.at] }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

func load(path string) store {
	var read []series
	body, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(body, &read)
	}
	if err != nil {
		log.Fatal(err)
	}
	var all []held
	for _, each := range read {
		one := held{lset: labels.FromMap(each.Labels)}
		for i, at := range each.Times {
			value, err := strconv.ParseFloat(each.Values[i], 64)
			if err != nil {
				log.Fatal(err)
			}
			one.samples = append(one.samples, sample{int64(at * 1000), value})
		}
		all = append(all, one)
	}
	return store{all}
}

func seconds(text string) time.Time {
	value, _ := strconv.ParseFloat(text, 64)
	return time.UnixMilli(int64(value * 1000))
}

func main() {
	data := load(os.Args[1])
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 50_000_000, Timeout: time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		Parser:                   parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
	})
	answer := func(ranged bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			text := r.FormValue("query")
			var query promql.Query
			var err error
			if ranged {
				step, _ := strconv.ParseFloat(r.FormValue("step"), 64)
				query, err = engine.NewRangeQuery(r.Context(), data, nil, text, seconds(r.FormValue("start")),
					seconds(r.FormValue("end")), time.Duration(step*float64(time.Second)))
			} else {
				query, err = engine.NewInstantQuery(r.Context(), data, nil, text, seconds(r.FormValue("time")))
			}
			out := map[string]any{"status": "success"}
			kind := "bad_data"
			if err == nil {
				kind = "execution"
				result := query.Exec(r.Context())
				err = result.Err
				if err == nil {
					warnings, infos := result.Warnings.AsStrings(text, 0, 0)
					out["warnings"], out["infos"] = warnings, infos
					out["data"] = map[string]any{"resultType": result.Value.Type(), "result": result.Value}
				}
			}
			if err != nil {
				out = map[string]any{"status": "error", "errorType": kind, "error": err.Error()}
			}
			_ = json.NewEncoder(w).Encode(out)
		}
	}
	http.HandleFunc("/api/v1/query", answer(false))
	http.HandleFunc("/api/v1/query_range", answer(true))
	http.HandleFunc("/-/ready", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(os.Args[2], nil))
}
