package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// receiver is a consumer of any kind that keeps a record of every delivery and fails those it was ordered to fail.
type receiver struct {
	push       rocketmq.PushConsumer
	puller     rocketmq.PullConsumer
	replies    rocketmq.Producer
	done       chan struct{}
	polling    sync.WaitGroup
	resolver   primitive.NsResolver
	lock       sync.Mutex
	failures   map[string]int
	failed     map[string]int
	deliveries []map[string]any
}

func openReceiver(o *order) (*receiver, error) {
	r := &receiver{
		done:       make(chan struct{}),
		failures:   o.Failures,
		failed:     map[string]int{},
		deliveries: []map[string]any{},
		resolver:   primitive.NewPassthroughResolver(strings.Split(o.NameServers, ";")),
	}
	options := []consumer.Option{
		consumer.WithGroupName(o.Group),
		consumer.WithInstance(o.Name),
		consumer.WithNsResolver(r.resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(o.MaxReconsumes),
		consumer.WithConsumerOrder(o.Kind == "orderly"),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
		consumer.WithRebalanceLockInterval(time.Second),
	}
	if o.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if o.Trace {
		options = append(options, consumer.WithTrace(traceConfig(o)))
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.Expression}
	if o.SQL {
		selector.Type = consumer.SQL92
	}
	if o.Reply {
		replies, err := rocketmq.NewProducer(
			producer.WithGroupName(o.Group+"_REPLY"),
			producer.WithInstanceName(o.Name+"_reply"),
			producer.WithNsResolver(r.resolver),
		)
		if err != nil {
			return nil, err
		}
		if err := replies.Start(); err != nil {
			return nil, err
		}
		r.replies = replies
	}
	if o.Kind == "pull" || o.Kind == "lite" {
		return r, r.startPull(o, selector, options)
	}
	return r, r.startPush(o, selector, options)
}

func (r *receiver) startPush(o *order, selector consumer.MessageSelector, options []consumer.Option) error {
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	r.push = c
	err = c.Subscribe(o.Topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		success := true
		for _, m := range messages {
			success = r.keep(m) && success
			if r.replies != nil {
				if err := r.answer(m); err != nil {
					return consumer.ConsumeRetryLater, err
				}
			}
		}
		if success {
			return consumer.ConsumeSuccess, nil
		}
		if o.Kind == "orderly" {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return err
	}
	return c.Start()
}

func (r *receiver) startPull(o *order, selector consumer.MessageSelector, options []consumer.Option) error {
	c, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return err
	}
	r.puller = c
	if err := c.Subscribe(o.Topic, selector); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	if o.Kind == "lite" {
		r.polling.Add(1)
		go r.poll()
	}
	return nil
}

func (r *receiver) poll() {
	defer r.polling.Done()
	ctx := context.Background()
	for {
		select {
		case <-r.done:
			return
		default:
		}
		batch, err := r.puller.Poll(ctx, 100*time.Millisecond)
		if err != nil {
			continue
		}
		for _, m := range batch.GetMsgList() {
			r.keep(m)
		}
		r.puller.ACK(ctx, batch, consumer.ConsumeSuccess)
	}
}

// pull reads a topic from its beginning. The client holds a pull at the end of a queue, so it stops one short of that.
func (r *receiver) pull(topic string) (any, error) {
	a, err := admin.NewAdmin(admin.WithResolver(r.resolver))
	if err != nil {
		return nil, err
	}
	defer a.Close()
	queues, err := a.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return nil, err
	}
	found := []map[string]any{}
	for _, queue := range queues {
		for next := int64(0); ; {
			result, err := r.puller.PullFrom(context.Background(), queue, next, 32)
			if err != nil {
				return nil, err
			}
			for _, m := range result.GetMessageExts() {
				found = append(found, describe(m))
			}
			next = result.NextBeginOffset
			if next >= result.MaxOffset {
				break
			}
		}
	}
	return found, nil
}

func (r *receiver) keep(m *primitive.MessageExt) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	success := true
	if wanted, listed := r.failures[m.GetKeys()]; listed {
		success = wanted >= 0 && r.failed[m.GetKeys()] >= wanted
		r.failed[m.GetKeys()]++
	}
	record := describe(m)
	record["success"] = success
	r.deliveries = append(r.deliveries, record)
	return success
}

// answer replies after a second: the client tells the broker who asks only while the question is on its way.
func (r *receiver) answer(m *primitive.MessageExt) error {
	body := []byte("reply to " + m.GetKeys())
	reply, err := consumer.CreateReplyMessage(m, body)
	if err != nil {
		return err
	}
	reply.Body = body // which v2.1.2 forgets
	time.Sleep(time.Second)
	result, err := r.replies.SendSync(context.Background(), reply)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("reply: status %v", result.Status)
	}
	return err
}

func (r *receiver) received(from int) any {
	r.lock.Lock()
	defer r.lock.Unlock()
	return append([]map[string]any{}, r.deliveries[from:]...)
}

func (r *receiver) close() error {
	close(r.done)
	r.polling.Wait()
	if r.replies != nil {
		if err := r.replies.Shutdown(); err != nil {
			return err
		}
	}
	if r.puller != nil {
		if err := r.puller.PersistOffset(context.Background(), ""); err != nil {
			return err
		}
		return r.puller.Shutdown()
	}
	return r.push.Shutdown()
}

func describe(m *primitive.MessageExt) map[string]any {
	return map[string]any{
		"id":             m.MsgId,
		"offsetId":       m.OffsetMsgId,
		"topic":          m.Topic,
		"queueId":        m.Queue.QueueId,
		"queueOffset":    m.QueueOffset,
		"body":           string(m.Body),
		"tags":           m.GetTags(),
		"keys":           m.GetKeys(),
		"properties":     m.GetProperties(),
		"reconsumeTimes": m.ReconsumeTimes,
		"bornMs":         m.BornTimestamp,
		"storeMs":        m.StoreTimestamp,
		"receivedMs":     time.Now().UnixMilli(),
	}
}
