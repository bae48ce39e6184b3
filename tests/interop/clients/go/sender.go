package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const asyncTimeout = 20 * time.Second

// sender is a producer of either kind; its transactions end as ordered, and check-backs are counted.
type sender struct {
	plain         rocketmq.Producer
	transactional rocketmq.TransactionProducer
	lock          sync.Mutex
	transactions  map[string]message
	checks        map[string]int
}

// shardSelector sends messages with a shard to the queue of that number, others round robin.
type shardSelector struct {
	others producer.QueueSelector
}

func (s shardSelector) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	var shard int
	if _, err := fmt.Sscan(m.GetShardingKey(), &shard); err != nil {
		return s.others.Select(m, queues, last)
	}
	return queues[shard%len(queues)]
}

func openSender(o *order) (*sender, error) {
	s := &sender{transactions: map[string]message{}, checks: map[string]int{}}
	resolver := primitive.NewPassthroughResolver(strings.Split(o.NameServers, ";"))
	options := []producer.Option{
		producer.WithGroupName(o.Group),
		producer.WithInstanceName(o.Name),
		producer.WithNsResolver(resolver),
		producer.WithQueueSelector(shardSelector{producer.NewRoundRobinQueueSelector()}),
		producer.WithSendMsgTimeout(10 * time.Second),
	}
	if o.Trace {
		options = append(options, producer.WithTrace(traceConfig(o)))
	}
	if o.Transactional {
		p, err := rocketmq.NewTransactionProducer(s, options...)
		if err != nil {
			return nil, err
		}
		s.transactional = p
		return s, p.Start()
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	s.plain = p
	return s, p.Start()
}

func traceConfig(o *order) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		Access:    primitive.Local,
		GroupName: o.Group + "_TRACE",
		Resolver:  primitive.NewPassthroughResolver(strings.Split(o.NameServers, ";")),
	}
}

func (s *sender) send(mode string, orders []message) (any, error) {
	messages := make([]*primitive.Message, len(orders))
	for i := range orders {
		messages[i] = build(&orders[i])
		if mode == "ordered" {
			messages[i].WithShardingKey(fmt.Sprint(orders[i].Shard))
		}
	}
	ctx := context.Background()
	results := []any{}
	switch mode {
	case "async":
		return s.sendAsync(messages)
	case "batch":
		result, err := s.plain.SendSync(ctx, messages...)
		return []any{report(result)}, err
	case "oneway":
		for _, m := range messages {
			if err := s.plain.SendOneWay(ctx, m); err != nil {
				return nil, err
			}
		}
	default:
		for _, m := range messages {
			result, err := s.plain.SendSync(ctx, m)
			if err != nil {
				return nil, err
			}
			results = append(results, report(result))
		}
	}
	return results, nil
}

func (s *sender) sendAsync(messages []*primitive.Message) (any, error) {
	results := make([]any, len(messages))
	var open sync.WaitGroup
	for i, m := range messages {
		open.Add(1)
		var once sync.Once
		err := s.plain.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			once.Do(func() {
				if err != nil {
					results[i] = map[string]any{"error": err.Error()}
				} else {
					results[i] = report(result)
				}
				open.Done()
			})
		}, m)
		if err != nil {
			return nil, err
		}
	}
	finished := make(chan struct{})
	go func() {
		open.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return results, nil
	case <-time.After(asyncTimeout):
		return nil, errors.New("not every send was called back")
	}
}

func (s *sender) transact(orders []message) (any, error) {
	results := []any{}
	for i := range orders {
		s.lock.Lock()
		s.transactions[orders[i].Keys] = orders[i]
		s.lock.Unlock()
		result, err := s.transactional.SendMessageInTransaction(context.Background(), build(&orders[i]))
		if err != nil {
			return nil, err
		}
		fields := report(result.SendResult)
		fields["state"] = fmt.Sprint(result.State)
		results = append(results, fields)
	}
	return results, nil
}

// ExecuteLocalTransaction ends a transaction as its message was ordered to end.
func (s *sender) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	s.lock.Lock()
	defer s.lock.Unlock()
	return state(s.transactions[m.GetKeys()].Outcome)
}

// CheckLocalTransaction answers the broker's question and counts it.
func (s *sender) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.checks[m.GetKeys()]++
	return state(s.transactions[m.GetKeys()].Check)
}

func (s *sender) countedChecks() map[string]int {
	s.lock.Lock()
	defer s.lock.Unlock()
	counted := map[string]int{}
	for key, count := range s.checks {
		counted[key] = count
	}
	return counted
}

func (s *sender) request(m *message, timeoutMs int) (any, error) {
	reply, err := s.plain.Request(context.Background(), time.Duration(timeoutMs)*time.Millisecond, build(m))
	if err != nil {
		return nil, err
	}
	return map[string]any{"body": string(reply.Body), "properties": reply.GetProperties()}, nil
}

func (s *sender) close() error {
	if s.transactional != nil {
		return s.transactional.Shutdown()
	}
	return s.plain.Shutdown()
}

func build(m *message) *primitive.Message {
	built := primitive.NewMessage(m.Topic, []byte(m.Body))
	built.WithTag(m.Tags)
	built.WithKeys([]string{m.Keys})
	for name, value := range m.Properties {
		built.WithProperty(name, value)
	}
	if m.DelayLevel > 0 {
		built.WithDelayTimeLevel(m.DelayLevel)
	}
	return built
}

func state(outcome string) primitive.LocalTransactionState {
	switch outcome {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func report(result *primitive.SendResult) map[string]any {
	if result == nil {
		return map[string]any{}
	}
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprint("status ", result.Status)
	}
	fields := map[string]any{
		"status": status, "id": result.MsgID, "offsetId": result.OffsetMsgID, "queueOffset": result.QueueOffset,
	}
	if result.MessageQueue != nil {
		fields["queueId"] = result.MessageQueue.QueueId
	}
	return fields
}
