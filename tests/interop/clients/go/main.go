// Command client puts the Go client behind the common orders of the client matrix: a JSON object per line in, one per
// line out. Producers and consumers are named by the orders and live until they are closed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// message is what is to be sent, with how its transaction is to end.
type message struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	DelayLevel int               `json:"delayLevel"`
	Shard      int               `json:"shard"`
	Outcome    string            `json:"outcome"`
	Check      string            `json:"check"`
}

type order struct {
	Do            string         `json:"do"`
	Name          string         `json:"name"`
	Group         string         `json:"group"`
	NameServers   string         `json:"nameServers"`
	Transactional bool           `json:"transactional"`
	Trace         bool           `json:"trace"`
	Kind          string         `json:"kind"`
	Broadcast     bool           `json:"broadcast"`
	Topic         string         `json:"topic"`
	Expression    string         `json:"expression"`
	SQL           bool           `json:"sql"`
	Failures      map[string]int `json:"failures"`
	Reply         bool           `json:"reply"`
	MaxReconsumes int32          `json:"maxReconsumes"`
	Producer      string         `json:"producer"`
	Consumer      string         `json:"consumer"`
	Mode          string         `json:"mode"`
	Messages      []message      `json:"messages"`
	Message       message        `json:"message"`
	TimeoutMs     int            `json:"timeoutMs"`
	From          int            `json:"from"`
}

type client struct {
	senders   map[string]*sender
	receivers map[string]*receiver
}

func main() {
	rlog.SetLogLevel("warn")
	answers := json.NewEncoder(os.Stdout)
	answer := func(fields map[string]any) {
		if err := answers.Encode(fields); err != nil {
			os.Exit(1)
		}
	}
	c := &client{senders: map[string]*sender{}, receivers: map[string]*receiver{}}
	answer(map[string]any{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		var result any
		if err == nil {
			result, err = c.obey(&o)
		}
		if err != nil {
			answer(map[string]any{"event": "failed", "error": err.Error()})
		} else {
			answer(map[string]any{"event": "done", "result": result})
		}
	}
}

func (c *client) obey(o *order) (any, error) {
	switch o.Do {
	case "producer":
		s, err := openSender(o)
		c.senders[o.Name] = s
		return nil, err
	case "consumer":
		r, err := openReceiver(o)
		c.receivers[o.Name] = r
		return nil, err
	case "send":
		return c.senders[o.Producer].send(o.Mode, o.Messages)
	case "transact":
		return c.senders[o.Producer].transact(o.Messages)
	case "checks":
		return c.senders[o.Producer].countedChecks(), nil
	case "request":
		return c.senders[o.Producer].request(&o.Message, o.TimeoutMs)
	case "received":
		return c.receivers[o.Consumer].received(o.From), nil
	case "pull":
		return c.receivers[o.Consumer].pull(o.Topic)
	case "close":
		return nil, c.close(o.Name)
	}
	return nil, fmt.Errorf("unknown order %q", o.Do)
}

func (c *client) close(name string) error {
	if s := c.senders[name]; s != nil {
		delete(c.senders, name)
		return s.close()
	}
	if r := c.receivers[name]; r != nil {
		delete(c.receivers, name)
		return r.close()
	}
	return nil
}
